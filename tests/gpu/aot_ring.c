/* A C program's part of aot_program.py: it links the library that was built ahead of time and runs its kernels on the symmetric heap of the
   process that loaded it. Gives the first failure's code, with its text in ``words``. */
#include "ring_kernels.h"

#include <stdio.h>

int run_ring(void *stream, uint64_t data, uint64_t flags, int32_t count, int32_t rounds, char *words, unsigned long size) {
    int code = load_push_ahead();
    if (!code)
        code = load_ring_ahead();
    for (int32_t round = 1; !code && round <= rounds; ++round) {
        code = push_ahead_default(stream, data, flags, count, round);
        if (!code)
            code = ring_ahead_default(stream, data, flags, count, round);
    }
    snprintf(words, size, "%s", code ? ring_kernels_last_error() : "");
    return code;
}
