/* What the kernels of this library share: how they are loaded and launched. Private to the library; LIBRARY stands for its name. */
#ifndef LIBRARY_RUNTIME_H
#define LIBRARY_RUNTIME_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* One compiled kernel. What is 0 at first is filled in by LIBRARY_runtime_load. */
struct LIBRARY_kernel {
    const unsigned char *image; /* machine code */
    const char *symbol;
    unsigned threads;        /* of a block */
    unsigned shared;         /* bytes of a block's shared memory that a launch asks for */
    unsigned blocks;         /* of a cluster */
    int opt_in;              /* more than 48 KiB in all */
    int cooperative;
    int dependent_launch;
    int needs_heap;          /* reads the context page */
    int world_size;          /* that it was compiled for; 0: any */
    size_t scratch;          /* bytes of global memory for each program */
    CUmodule module;
    CUfunction function;
    CUcontext context;
};

/* All give 0, a code of the public header (negative), or one of the driver's (positive); the text is kept for this thread. */
int LIBRARY_runtime_load(struct LIBRARY_kernel *kernel);
int LIBRARY_runtime_unload(struct LIBRARY_kernel *kernel);
int LIBRARY_runtime_launch(
    struct LIBRARY_kernel *kernel, CUstream stream, unsigned x, unsigned y, unsigned z, void **arguments, CUdeviceptr *scratch);

/* The first failure of the loads and unloads since LIBRARY_runtime_begin. */
void LIBRARY_runtime_begin(void);
int LIBRARY_runtime_status(void);

/* Keeps a text and gives the code. */
int LIBRARY_runtime_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline int64_t cdiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

#endif
