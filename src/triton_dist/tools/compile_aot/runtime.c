/* Loads and launches the kernels of this library. The driver is looked for when the first one is loaded, so that the library links
   and starts where there is none. */
#include "LIBRARY_runtime.h"
#include "LIBRARY.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define AS_TEXT(name) #name
#define EXPANDED(name) AS_TEXT(name)

struct LIBRARY_driver LIBRARY_driver;

static _Thread_local char last_error[512];
static _Thread_local int first_failure;
static CUcontext checked_context; /* whose context page was looked at */
static int checked_world_size;

const char *LIBRARY_last_error(void) { return last_error; }

int LIBRARY_runtime_fail(int code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(last_error, sizeof last_error, format, values);
    va_end(values);
    if (!first_failure)
        first_failure = code;
    return code;
}

void LIBRARY_runtime_begin(void) { first_failure = 0; }

int LIBRARY_runtime_status(void) { return first_failure; }

int LIBRARY_fail_of_driver(CUresult code, const char *what) {
    const char *name = NULL, *text = NULL;
    LIBRARY_driver.call_cuGetErrorName(code, &name);
    LIBRARY_driver.call_cuGetErrorString(code, &text);
    return LIBRARY_runtime_fail((int)code, "%s: %s (%s)", what, text ? text : "unknown error", name ? name : "?");
}

int LIBRARY_open_driver(void) {
    if (LIBRARY_driver.library)
        return 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return LIBRARY_runtime_fail(
            TRITON_DIST_NO_DRIVER, "no NVIDIA driver on this machine (%s); the kernels of LIBRARY need one to run", dlerror());
#define FIND(name) \
    LIBRARY_driver.call_##name = (__typeof__(&name))dlsym(library, EXPANDED(name)); \
    if (!LIBRARY_driver.call_##name) \
        return LIBRARY_runtime_fail(TRITON_DIST_NO_DRIVER, "the NVIDIA driver has no %s; LIBRARY needs one for CUDA 12 or newer", EXPANDED(name));
    LIBRARY_DRIVER_FUNCTIONS(FIND)
    LIBRARY_driver.library = library;
    return 0;
}

static int current_context(CUcontext *context) {
    *context = NULL;
    if (LIBRARY_driver.call_cuCtxGetCurrent(context) != CUDA_SUCCESS || !*context)
        return LIBRARY_runtime_fail(
            TRITON_DIST_NO_CONTEXT,
            "this thread has no CUDA context; call from a thread of the process in which triton_dist.initialize() ran, "
            "or make its primary context current (cuCtxSetCurrent)");
    return 0;
}

/* The context page, at its constant address, is there and laid out as the kernels were compiled for. */
static int check_page(CUcontext context) {
    unsigned kind = 0;
    if (context == checked_context)
        return 0;
    if (LIBRARY_driver.call_cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, LIBRARY_CONTEXT_PAGE) != CUDA_SUCCESS)
        return LIBRARY_runtime_fail(
            TRITON_DIST_NO_HEAP,
            "this process has no symmetric heap (nothing at %#llx); call triton_dist.initialize() in it, before its kernels are loaded",
            (unsigned long long)LIBRARY_CONTEXT_PAGE);
    uint64_t mark = 0;
    int32_t world_size = 0;
    LIBRARY_TRY(cuMemcpyDtoH(&mark, LIBRARY_CONTEXT_PAGE + LIBRARY_LAYOUT_WORD, sizeof mark), "reading the context page");
    if (mark != LIBRARY_LAYOUT_MARK) {
        if (mark >> 32 != LIBRARY_LAYOUT_MARK >> 32)
            return LIBRARY_runtime_fail(
                TRITON_DIST_OTHER_LAYOUT,
                "the context page of this process has no version: its triton_dist is older than the one that built LIBRARY (version %llu); "
                "build the library again with the installed one", (unsigned long long)(LIBRARY_LAYOUT_MARK & 0xffffffffu));
        return LIBRARY_runtime_fail(
            TRITON_DIST_OTHER_LAYOUT,
            "the address map and context page of this process have version %llu, LIBRARY was built for version %llu; "
            "build the library again with the installed triton_dist",
            (unsigned long long)(mark & 0xffffffffu), (unsigned long long)(LIBRARY_LAYOUT_MARK & 0xffffffffu));
    }
    LIBRARY_TRY(cuMemcpyDtoH(&world_size, LIBRARY_CONTEXT_PAGE + LIBRARY_WORLD_SIZE_WORD, sizeof world_size), "reading the context page");
    checked_context = context;
    checked_world_size = world_size;
    return 0;
}

int LIBRARY_synchronize(void *stream) {
    int code = LIBRARY_open_driver();
    if (!code)
        LIBRARY_TRY(cuStreamSynchronize((CUstream)stream), "waiting for a stream");
    return code;
}

void LIBRARY_forget_page(void) { checked_context = NULL; }

static int allow_shared_memory(struct LIBRARY_kernel *kernel) {
    CUdevice device;
    int most = 0, fixed = 0;
    LIBRARY_TRY(cuCtxGetDevice(&device), "asking for the device");
    LIBRARY_TRY(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device), "asking for shared memory");
    LIBRARY_TRY(cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->function), "asking for shared memory");
    LIBRARY_TRY(cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most - fixed), "asking for shared memory");
    return 0;
}

static int load_module(struct LIBRARY_kernel *kernel) {
    LIBRARY_TRY(cuModuleLoadData(&kernel->module, kernel->image), kernel->symbol);
    LIBRARY_TRY(cuModuleGetFunction(&kernel->function, kernel->module, kernel->symbol), kernel->symbol);
    if (kernel->blocks == 16)
        LIBRARY_TRY(cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1), kernel->symbol);
    return kernel->opt_in ? allow_shared_memory(kernel) : 0;
}

int LIBRARY_runtime_load(struct LIBRARY_kernel *kernel) {
    CUcontext context;
    int code = LIBRARY_open_driver();
    if (!code)
        code = current_context(&context);
    if (code || (kernel->function && kernel->context == context))
        return code;
    if (kernel->function)
        return LIBRARY_runtime_fail(
            TRITON_DIST_OTHER_CONTEXT, "%s is loaded in another CUDA context; unload it there first: a process has one GPU", kernel->symbol);
    if (kernel->needs_heap || kernel->world_size) {
        code = check_page(context);
        if (code)
            return code;
        if (kernel->world_size && kernel->world_size != checked_world_size)
            return LIBRARY_runtime_fail(
                TRITON_DIST_OTHER_WORLD_SIZE, "%s was compiled for %d ranks, this world has %d", kernel->symbol, kernel->world_size,
                checked_world_size);
    }
    code = load_module(kernel);
    if (code) {
        if (kernel->module)
            LIBRARY_driver.call_cuModuleUnload(kernel->module);
        kernel->module = NULL;
        kernel->function = NULL;
        return code;
    }
    kernel->context = context;
    return 0;
}

int LIBRARY_runtime_unload(struct LIBRARY_kernel *kernel) {
    CUmodule module = kernel->module;
    kernel->module = NULL;
    kernel->function = NULL;
    kernel->context = NULL;
    LIBRARY_forget_page(); /* the next world may be another one */
    if (module)
        LIBRARY_TRY(cuModuleUnload(module), kernel->symbol);
    return 0;
}

int LIBRARY_runtime_launch(
    struct LIBRARY_kernel *kernel, CUstream stream, unsigned x, unsigned y, unsigned z, void **arguments, CUdeviceptr *scratch) {
    int code = LIBRARY_runtime_load(kernel);
    if (code || !x || !y || !z)
        return code;
    CUlaunchAttribute attributes[4];
    CUlaunchConfig config;
    memset(attributes, 0, sizeof attributes);
    memset(&config, 0, sizeof config);
    config.gridDimX = x * kernel->blocks;
    config.gridDimY = y;
    config.gridDimZ = z;
    config.blockDimX = kernel->threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = kernel->shared;
    config.hStream = stream;
    config.attrs = attributes;
    if (kernel->dependent_launch) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[config.numAttrs++].value.programmaticStreamSerializationAllowed = 1;
    }
    if (kernel->cooperative) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[config.numAttrs++].value.cooperative = 1;
    }
    if (kernel->blocks > 1) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[config.numAttrs].value.clusterDim.x = kernel->blocks;
        attributes[config.numAttrs].value.clusterDim.y = 1;
        attributes[config.numAttrs++].value.clusterDim.z = 1;
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
        attributes[config.numAttrs++].value.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
    }
    if (kernel->scratch)
        LIBRARY_TRY(cuMemAllocAsync(scratch, kernel->scratch * x * y * z * kernel->blocks, stream), "memory for descriptors");
    CUresult launched = LIBRARY_driver.call_cuLaunchKernelEx(&config, kernel->function, arguments, NULL);
    if (kernel->scratch)
        LIBRARY_driver.call_cuMemFreeAsync(*scratch, stream);
    return launched == CUDA_SUCCESS ? 0 : LIBRARY_fail_of_driver(launched, kernel->symbol);
}
