// A small library for the tests; it needs no header of CUDA.
#define FUNCTION extern "C" __device__

typedef unsigned long long word;
enum Mode : unsigned char { FAST, EXACT };
struct Pair { float a, b; };

static __device__ float hidden(float x) { return x * x; }

FUNCTION float squared_norm(float x, float y) { return hidden(x) + hidden(y); }
FUNCTION int shifted(word x, int lambda) { return (int)(x >> lambda); }
FUNCTION void put(int *__restrict__ to, const int value, bool twice) { to[0] = value, to[1] = twice ? value : 0; }
FUNCTION double table_entry(const double *table, Mode mode) { return table[mode]; }
FUNCTION const float *after(const float *start, short count) { return start + count; }
FUNCTION float of_pair(const Pair *pair) { return pair->a + pair->b; }
FUNCTION Pair make_pair(float a) { return Pair{a, a}; }
__device__ double overloaded(double x) { return x + 1; }
__device__ float overloaded(float x) { return x + 2; }
