/* Lets a process without Python use the symmetric heap of a rank that lends it (triton_dist.tools.lend_heap): the memory of all ranks is mapped
   at the addresses that it has in theirs. */
#define _GNU_SOURCE
#include "LIBRARY_runtime.h"
#include "LIBRARY.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What a rank says when it is connected to, with a descriptor of its heap's memory; the bytes of its context page follow. */
struct offer {
    uint64_t mark; /* of the layout */
    uint64_t heap_bytes;
    int32_t rank, world_size;
    uint32_t page_bytes, unused;
    char bus[32]; /* place of its GPU */
};

static struct {
    CUdeviceptr slot, address;
    size_t bytes;
} mapped[LIBRARY_MAX_WORLD_SIZE + 1]; /* slots that are reserved; address 0: nothing is mapped there */
static int mapped_count;
static CUdevice device;
static int has_context;

static int receive_rest(int connection, void *target, size_t bytes) {
    char *to = target;
    while (bytes) {
        ssize_t got = recv(connection, to, bytes, 0);
        if (got <= 0)
            return -1;
        to += got;
        bytes -= (size_t)got;
    }
    return 0;
}

/* The offer and its descriptor. Gives -1 if less comes. */
static int receive_offer(int connection, struct offer *offer, int *descriptor) {
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = { offer, sizeof *offer };
    struct msghdr message;
    memset(&message, 0, sizeof message);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return -1;
    memcpy(descriptor, CMSG_DATA(header), sizeof(int));
    return receive_rest(connection, (char *)offer + got, sizeof *offer - (size_t)got);
}

/* Ask a rank for its heap. page: filled with the bytes of its context page, to be freed; NULL to leave them. */
static int ask(const char *folder, int rank, struct offer *offer, int *descriptor, void **page) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/rank%d", folder, rank);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = { .tv_sec = 60 };
    int failed = connection < 0 || length >= (int)sizeof address.sun_path;
    *descriptor = -1;
    if (!failed) {
        setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        failed = connect(connection, (struct sockaddr *)&address, sizeof address) || receive_offer(connection, offer, descriptor);
    }
    if (!failed && page) {
        *page = malloc(offer->page_bytes);
        failed = !*page || receive_rest(connection, *page, offer->page_bytes);
    }
    int reason = errno;
    if (connection >= 0)
        close(connection);
    if (failed)
        return LIBRARY_runtime_fail(
            TRITON_DIST_NOT_LENT, "rank %d does not lend its heap at %s (%s); it has to be inside of triton_dist.tools.lend_heap", rank,
            address.sun_path, strerror(reason));
    if (offer->mark != LIBRARY_LAYOUT_MARK)
        return LIBRARY_runtime_fail(
            TRITON_DIST_OTHER_LAYOUT, "rank %d's address map has version %llu, LIBRARY was built for version %llu; build the library again", rank,
            (unsigned long long)(offer->mark & 0xffffffffu), (unsigned long long)(LIBRARY_LAYOUT_MARK & 0xffffffffu));
    return 0;
}

/* Map memory into a slot, at address, and take the handle over. */
static int map(CUdeviceptr slot, CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle memory) {
    CUdeviceptr got = 0;
    CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUresult code = LIBRARY_driver.call_cuMemAddressReserve(&got, LIBRARY_STRIDE, 0, slot, 0);
    if (code == CUDA_SUCCESS && got != slot) {
        LIBRARY_driver.call_cuMemAddressFree(got, LIBRARY_STRIDE);
        LIBRARY_driver.call_cuMemRelease(memory);
        return LIBRARY_runtime_fail(
            TRITON_DIST_ADDRESS_IN_USE, "something else is at %#llx; join before other libraries reserve address space", (unsigned long long)slot);
    }
    if (code == CUDA_SUCCESS) {
        mapped[mapped_count].slot = slot;
        mapped[mapped_count].address = 0;
        mapped[mapped_count++].bytes = bytes;
        code = LIBRARY_driver.call_cuMemMap(address, bytes, 0, memory, 0);
    }
    if (code == CUDA_SUCCESS) {
        mapped[mapped_count - 1].address = address;
        code = LIBRARY_driver.call_cuMemSetAccess(address, bytes, &access, 1);
    }
    LIBRARY_driver.call_cuMemRelease(memory); /* the mapping keeps it */
    return code == CUDA_SUCCESS ? 0 : LIBRARY_fail_of_driver(code, "mapping the heap");
}

static int map_heap(int rank, const struct offer *offer, int descriptor) {
    CUmemGenericAllocationHandle memory;
    CUdeviceptr slot = LIBRARY_CONTEXT_PAGE + (CUdeviceptr)(rank + 1) * LIBRARY_STRIDE;
    LIBRARY_TRY(cuMemImportFromShareableHandle(&memory, (void *)(uintptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), "importing a heap");
    return map(slot, slot + LIBRARY_GUARD, offer->heap_bytes, memory);
}

/* A context page of this process's own: as the rank's, without the wait board, which is that process's memory. */
static int map_page(unsigned char *page, size_t bytes) {
    size_t granularity = 0;
    CUmemGenericAllocationHandle memory;
    CUmemAllocationProp kind;
    memset(&kind, 0, sizeof kind);
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    kind.location.id = device;
    memset(page + LIBRARY_WAIT_BOARD_WORD, 0, sizeof(uint64_t));
    LIBRARY_TRY(cuMemGetAllocationGranularity(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "making the context page");
    LIBRARY_TRY(cuMemCreate(&memory, granularity, &kind, 0), "making the context page");
    int code = map(LIBRARY_CONTEXT_PAGE, LIBRARY_CONTEXT_PAGE, granularity, memory);
    if (!code)
        LIBRARY_TRY(cuMemcpyHtoD(LIBRARY_CONTEXT_PAGE, page, bytes), "writing the context page");
    return code;
}

static int use_device(const char *bus) {
    CUcontext context;
    LIBRARY_TRY(cuInit(0), "starting CUDA");
    LIBRARY_TRY(cuDeviceGetByPCIBusId(&device, bus), "finding the rank's GPU; CUDA_VISIBLE_DEVICES has to show it");
    LIBRARY_TRY(cuDevicePrimaryCtxRetain(&context, device), "starting CUDA");
    has_context = 1;
    LIBRARY_TRY(cuCtxSetCurrent(context), "starting CUDA");
    return 0;
}

/* Behind the answer of the rank itself. */
static int map_all(const char *folder, int rank, const struct offer *own, int own_descriptor, unsigned char *page) {
    unsigned kind;
    int code = use_device(own->bus);
    if (code)
        return code;
    if (LIBRARY_driver.call_cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, LIBRARY_CONTEXT_PAGE) == CUDA_SUCCESS)
        return LIBRARY_runtime_fail(TRITON_DIST_ADDRESS_IN_USE, "this process has a symmetric heap already");
    code = map_page(page, own->page_bytes);
    for (int peer = 0; !code && peer < own->world_size; ++peer) {
        struct offer offer = *own;
        int descriptor = own_descriptor;
        if (peer != rank)
            code = ask(folder, peer, &offer, &descriptor, NULL);
        if (!code)
            code = map_heap(peer, &offer, descriptor);
        if (peer != rank && descriptor >= 0)
            close(descriptor);
    }
    return code;
}

int LIBRARY_join(const char *folder, int rank) {
    struct offer own;
    int descriptor;
    void *page = NULL;
    if (mapped_count)
        return LIBRARY_runtime_fail(TRITON_DIST_ADDRESS_IN_USE, "this process has a symmetric heap already");
    int code = LIBRARY_open_driver();
    if (!code)
        code = ask(folder, rank, &own, &descriptor, &page);
    else
        return code;
    if (!code && (own.world_size < 1 || own.world_size > (int)LIBRARY_MAX_WORLD_SIZE || own.page_bytes < LIBRARY_WAIT_BOARD_WORD + sizeof(uint64_t)))
        code = LIBRARY_runtime_fail(TRITON_DIST_NOT_LENT, "what rank %d offers at %s is no heap", rank, folder);
    if (!code) {
        code = map_all(folder, rank, &own, descriptor, page);
        if (code) {
            char words[512];
            snprintf(words, sizeof words, "%s", LIBRARY_last_error());
            LIBRARY_leave();
            LIBRARY_runtime_fail(code, "%s", words);
        }
    }
    if (descriptor >= 0)
        close(descriptor);
    free(page);
    return code;
}

int LIBRARY_leave(void) {
    CUresult first = CUDA_SUCCESS, code;
    if (mapped_count) /* kernels that run would fault */
        first = LIBRARY_driver.call_cuCtxSynchronize();
    while (mapped_count) {
        --mapped_count;
        if (mapped[mapped_count].address) {
            code = LIBRARY_driver.call_cuMemUnmap(mapped[mapped_count].address, mapped[mapped_count].bytes);
            first = first ? first : code;
        }
        code = LIBRARY_driver.call_cuMemAddressFree(mapped[mapped_count].slot, LIBRARY_STRIDE);
        first = first ? first : code;
    }
    LIBRARY_forget_page();
    if (has_context) {
        has_context = 0;
        LIBRARY_driver.call_cuCtxSetCurrent(NULL);
        code = LIBRARY_driver.call_cuDevicePrimaryCtxRelease(device);
        first = first ? first : code;
    }
    return first ? LIBRARY_fail_of_driver(first, "unmapping the heap") : 0;
}
