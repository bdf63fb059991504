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

/* Functions of the driver; cuda.h turns their names into those of their present versions. */
#define LIBRARY_DRIVER_FUNCTIONS(use) \
    use(cuCtxGetCurrent) use(cuCtxGetDevice) use(cuCtxSetCurrent) use(cuCtxSynchronize) use(cuDeviceGetAttribute) \
    use(cuDeviceGetByPCIBusId)     use(cuDevicePrimaryCtxRelease) use(cuDevicePrimaryCtxRetain) use(cuFuncGetAttribute) use(cuFuncSetAttribute) use(cuGetErrorName) \
    use(cuGetErrorString) use(cuInit) use(cuLaunchKernelEx) use(cuMemAddressFree) use(cuMemAddressReserve) use(cuMemAllocAsync) \
    use(cuMemCreate) use(cuMemFreeAsync) use(cuMemGetAllocationGranularity) use(cuMemImportFromShareableHandle) use(cuMemMap) \
    use(cuMemRelease) use(cuMemSetAccess) use(cuMemUnmap) use(cuMemcpyDtoH) use(cuMemcpyHtoD) use(cuModuleGetFunction) \
    use(cuModuleLoadData) use(cuModuleUnload) use(cuPointerGetAttribute) use(cuStreamSynchronize)

#define LIBRARY_MEMBER(name) __typeof__(&name) call_##name;
struct LIBRARY_driver {
    void *library;
    LIBRARY_DRIVER_FUNCTIONS(LIBRARY_MEMBER)
};
extern struct LIBRARY_driver LIBRARY_driver;

/* Fills LIBRARY_driver, once. */
int LIBRARY_open_driver(void);
int LIBRARY_fail_of_driver(CUresult code, const char *what);

/* Call the driver, and leave the function with its code if it fails. */
#define LIBRARY_TRY(call, what) \
    do { \
        CUresult code_ = LIBRARY_driver.call_##call; \
        if (code_ != CUDA_SUCCESS) \
            return LIBRARY_fail_of_driver(code_, what); \
    } while (0)

/* Forget which context page was looked at. */
void LIBRARY_forget_page(void);

/* The first failure of the loads and unloads since LIBRARY_runtime_begin. */
void LIBRARY_runtime_begin(void);
int LIBRARY_runtime_status(void);

/* Keeps a text and gives the code. */
int LIBRARY_runtime_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline int64_t cdiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

#endif
