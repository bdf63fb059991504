/* A CUDA driver without a GPU, for the tests of libraries built ahead of time: it says what it was asked, and answers by the environment.
   FAKE_CONTEXT: 0 for a thread without one. FAKE_TAKEN: an address that can't be had. FAKE_UNREACHABLE: a heap that can't be mapped, by its text. FAKE_MARK, FAKE_WORLD_SIZE: the words of the context page; no FAKE_MARK: there is no page. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *setting(const char *name) { return getenv(name); }

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = (CUcontext)(size_t)(setting("FAKE_CONTEXT") ? atoi(setting("FAKE_CONTEXT")) : 1);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) { return *device = 0, CUDA_SUCCESS; }

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    (void)attribute, (void)device;
    return *value = 232448, CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    (void)attribute, (void)function;
    return *value = 1024, CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    (void)function;
    printf("attribute %d = %d\n", attribute, value);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) { return *name = code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "?", CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult code, const char **text) { return *text = code == 209 ? "no kernel image" : "?", CUDA_SUCCESS; }

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    if (!setting("FAKE_MARK") || attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE || pointer != 1ULL << 44)
        return CUDA_ERROR_INVALID_VALUE;
    return *(unsigned *)data = CU_MEMORYTYPE_DEVICE, CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH(void *target, CUdeviceptr source, size_t bytes) {
    unsigned long long mark = strtoull(setting("FAKE_MARK"), NULL, 0);
    int world_size = setting("FAKE_WORLD_SIZE") ? atoi(setting("FAKE_WORLD_SIZE")) : 2;
    if (source == (1ULL << 44) + 0x38 && bytes == 8)
        memcpy(target, &mark, 8);
    else if (source == (1ULL << 44) + 4 && bytes == 4)
        memcpy(target, &world_size, 4);
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    if (setting("FAKE_OTHER_GPU"))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = (CUmodule)image;
    return memcmp(image, "\177ELF", 4) ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    printf("load %s\n", name);
    return *function = (CUfunction)module, CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) { return printf("unload %d\n", module != NULL), CUDA_SUCCESS; }

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream) {
    printf("allocate %zu on %p\n", bytes, (void *)stream);
    return *pointer = 0x7000, CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) { return printf("free %#llx on %p\n", pointer, (void *)stream), CUDA_SUCCESS; }

/* The first three arguments as an address, an address and an int. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
    (void)function, (void)extra;
    printf("launch grid %u,%u,%u threads %u shared %u stream %p attributes", config->gridDimX, config->gridDimY, config->gridDimZ,
        config->blockDimX, config->sharedMemBytes, (void *)config->hStream);
    for (unsigned index = 0; index < config->numAttrs; ++index)
        printf(" %d", config->attrs[index].id);
    printf(" arguments %#llx %#llx %d\n", *(CUdeviceptr *)arguments[0], *(CUdeviceptr *)arguments[1], *(int *)arguments[2]);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }

CUresult cuStreamSynchronize(CUstream stream) { return printf("synchronize %p\n", (void *)stream), CUDA_SUCCESS; }

CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus) { return printf("device %s\n", bus), *device = 3, CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) { return *context = (CUcontext)(size_t)device, CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return printf("release context of %d\n", device), CUDA_SUCCESS; }

CUresult cuCtxSetCurrent(CUcontext context) { return (void)context, CUDA_SUCCESS; }

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *kind, CUmemAllocationGranularity_flags option) {
    (void)kind, (void)option;
    return *bytes = 2 << 20, CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *memory, size_t bytes, const CUmemAllocationProp *kind, unsigned long long flags) {
    (void)flags;
    return printf("create %zu on %d\n", bytes, kind->location.id), *memory = 99, CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags) {
    (void)alignment, (void)flags;
    *pointer = setting("FAKE_TAKEN") && wanted == strtoull(setting("FAKE_TAKEN"), NULL, 0) ? 0x7777000000000000 : wanted;
    return printf("reserve %#zx at %#llx\n", bytes, *pointer), CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes) { return printf("give back %#zx at %#llx\n", bytes, pointer), CUDA_SUCCESS; }

/* The memory of a rank is a file that holds its number. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *memory, void *handle, CUmemAllocationHandleType type) {
    char text[8] = "";
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pread((int)(size_t)handle, text, 7, 0) <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    return *memory = 1000 + atoi(text), CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle memory, unsigned long long flags) {
    (void)flags, (void)offset;
    if (setting("FAKE_UNREACHABLE") && memory == 1000ULL + atoi(setting("FAKE_UNREACHABLE")))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return printf("map %llu, %zu bytes, at %#llx\n", memory, bytes, pointer), CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    (void)bytes;
    return printf("access %#llx by %d (%d, %zu)\n", pointer, access->location.id, access->flags, count), CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes) { return printf("unmap %zu at %#llx\n", bytes, pointer), CUDA_SUCCESS; }

CUresult cuMemRelease(CUmemGenericAllocationHandle memory) { return printf("release %llu\n", memory), CUDA_SUCCESS; }

/* The page's first words, and whether it names a wait board. */
CUresult cuMemcpyHtoD(CUdeviceptr target, const void *source, size_t bytes) {
    const int *words = source;
    long long board;
    memcpy(&board, (const char *)source + 0x28, 8);
    return printf("page at %#llx, %zu bytes: rank %d of %d, board %lld\n", target, bytes, words[0], words[1], board), CUDA_SUCCESS;
}
