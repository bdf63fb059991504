"""torch.cuda, cuda-bindings and their kin on simulated ranks: what is refused, and that everything is put back."""

import atexit
import sys

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist import utils
from triton_dist.errors import CaptureError, InvalidArgumentError, MissingNameError, OutOfBoundsError, UnsupportedOperationError
from triton_dist.sim.cuda_shim import torch_cuda
from triton_dist.sim.simulate import simulate
from triton_dist.tools.run.simulated import in_process, looks_like_cuda


def on_cuda(fn, world_size=1, **options):
    """``simulate(fn)`` where the script sees CUDA."""
    with looks_like_cuda():
        return simulate(in_process(fn), world_size, **options)


def test_everything_is_put_back():
    table = torch_cuda.replacements()
    before = {place: getattr(*place, None) for place in table}
    others = triton.jit, atexit.register, list(sys.path), {name for name in sys.modules if name.split(".")[0] in ("cuda", "nvshmem")}

    def fn():

        torch.set_default_device("cuda")
        assert torch.zeros(1).is_cuda and torch.cuda.is_available()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        on_cuda(fn, 2)
    assert {place: getattr(*place, None) for place in table} == before
    assert (triton.jit, atexit.register, sys.path) == others[:3]
    assert {name for name in sys.modules if name.split(".")[0] in ("cuda", "nvshmem")} == others[3]
    assert torch.zeros(1).device.type == "cpu" and not torch.zeros(1).is_cuda


def test_device_of_this_package_is_the_scripts():
    def fn():
        assert triton_dist.device() == torch.device("cuda", triton_dist.local_rank())
        assert torch.zeros(1, device=triton_dist.device()).is_cuda and triton_dist.symm_zeros((2,)).is_cuda
        assert utils.rand_tensor((2,), torch.float32).is_cuda
        return torch.cuda.current_device(), torch.cuda.device_count(), torch.accelerator.current_accelerator().type

    assert on_cuda(fn, 4, num_nodes=2) == [(0, 2, "cuda"), (1, 2, "cuda"), (0, 2, "cuda"), (1, 2, "cuda")]


@pytest.mark.parametrize("gpu, name, capability", [("h100", "H100", (9, 0)), ("a100", "A100", (8, 0)), ("b200", "B200", (10, 0))])
def test_queries_tell_of_the_pretended_gpu(gpu, name, capability):
    def fn():
        properties = torch.cuda.get_device_properties(0)
        assert name in properties.name == torch.cuda.get_device_name() and (properties.major, properties.minor) == capability
        assert torch.cuda.get_device_capability("cuda:0") == capability
        assert torch.cuda.mem_get_info() == (properties.total_memory,) * 2
        assert torch.cuda.clock_rate() * 1000 == properties.clock_rate
        error, told = utils.cudart.cudaGetDeviceProperties(0)
        utils.CUDA_CHECK(error)
        assert told.sharedMemPerBlockOptin == properties.shared_memory_per_block_optin
        attribute = utils.cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        assert utils.cuda.cuDeviceGetAttribute(attribute, 0)[1] == properties.multi_processor_count

    on_cuda(fn, gpu=gpu)


def test_a_default_device_holds_for_its_rank_only():
    def fn():
        if triton_dist.rank() == 0:
            torch.set_default_device("cuda")
        torch.distributed.init_process_group("nccl")
        torch.distributed.barrier()
        with torch.device("cpu"):
            assert not torch.zeros(1).is_cuda
        return torch.zeros(1).is_cuda, torch.ones(2, device="cpu").is_cuda

    assert on_cuda(fn, 2) == [(True, False), (False, False)]


def test_where_results_are():
    def fn():
        host, device = torch.ones(4), torch.ones(4, device="cuda")
        stacked, like = torch.stack([host, host]), torch.zeros_like(host)
        for tensor in (host[1], host + 1, host.view(2, 2), host.clone(), stacked, like, host.double()):
            assert not tensor.is_cuda and tensor.is_cpu
        for tensor in (
            device[1],
            host + device,
            device.view(2, 2),
            torch.cat([device, device]),
            device.double(),
            host.to(0),
            host.to("cuda"),
        ):
            assert tensor.is_cuda and not tensor.is_cpu and tensor.get_device() == 0
        assert [part.is_cuda for part in host.split(2)] == [False, False]
        assert not torch.empty_like(device, device="cpu").is_cuda and torch.zeros_like(host, device="cuda").is_cuda
        assert host.cpu() is host and device.cuda() is device
        copied = host.cuda()
        copied.zero_()
        assert host.sum() == 4
        host.data = device
        assert host.is_cuda
        assert not torch.from_numpy(device.cpu().numpy()).is_cuda
        assert torch.Generator(device="cuda").manual_seed(3).initial_seed() == 3

    on_cuda(fn)


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda: torch.zeros(1, device="cuda:1"), "has one GPU, cuda:0"),
        (lambda: torch.zeros(1).cuda(3), "has one GPU"),
        (lambda: torch.cuda.make_graphed_callables(None, ()), "make_graphed_callables has no meaning on the simulator"),
        (lambda: isinstance(1, torch.cuda.MemPool) or torch.cuda.MemPool(), "MemPool has no meaning on the simulator"),
        (lambda: torch.cuda.memory._record_memory_history(), "memory._record_memory_history has no meaning on the simulator"),
        (lambda: torch.cuda.memory._snapshot(), "memory._snapshot has no meaning on the simulator"),
        (lambda: utils.cuda.cuDeviceGetAttribute(99999, 0), "cuDeviceGetAttribute"),
        (lambda: utils.cuda.cuStreamWaitValue32(0, 0, 1, utils.cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_AND), "GEQ and EQ"),
    ],
)
def test_what_the_simulator_has_not(use, said):
    with pytest.raises((UnsupportedOperationError, AttributeError), match=said):
        on_cuda(use, 1)


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda: torch.cuda.set_device(1 - triton_dist.rank()), "use LOCAL_RANK"),
        (lambda: torch.cuda.set_device("cpu"), "expected a CUDA device"),
        (lambda: torch.cuda.get_device_properties(2), "this node has 2"),
        (lambda: torch.cuda.ExternalStream(77), "no stream with the handle 0x4d"),
        (lambda: utils.cuda.cuStreamSynchronize("fast"), "'fast' is not a CUDA stream"),
        (lambda: utils.cuda.cuMemsetD8Async("here", 0, 1, 0), "'here' is not a device pointer"),
        (lambda: utils.cuda.cuMemsetD8Async(1 << 20, 0, "1", 0), "the number of elements must be an integer"),
        (lambda: utils.cuda.cuMemcpyAsync(1 << 20, 1 << 20, None, 0), "the number of bytes must be an integer"),
        (lambda: utils.cuda.cuGetErrorName(12345), "is not an error of the simulator's"),
        (lambda: utils.cudart.cudaGetErrorString(12345), "is not an error of the simulator's"),
        (lambda: utils.cudart.cudaFree(4096), "no cudaMalloc"),
        (lambda: torch.cuda.Event().elapsed_time(torch.cuda.Event()), "enable_timing=True"),
    ],
)
def test_mistakes_are_named(use, said):
    with pytest.raises(InvalidArgumentError, match=said):
        on_cuda(use, 2)


WAIT, WRITE = ("cuStreamWaitValue", "cuStreamWriteValue")


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("name", [WAIT, WRITE])
def test_words_of_streams_are_checked(name, bits):
    def call(*arguments):
        return on_cuda(lambda: getattr(utils.cuda, f"{name}{bits}")(*arguments))

    for offset in range(1, bits // 8):
        with pytest.raises(InvalidArgumentError, match=rf"{name}{bits}: a word of {bits} bits can't lie at .*CUDA_ERROR_INVALID_VALUE"):
            call(0, (1 << 20) + offset, 1, 0)
    for flags in ("eq", None, 1.0, 1 << 20, -8):
        with pytest.raises(InvalidArgumentError, match="flags"):
            call(0, 1 << 20, 1, flags)
    for value in ("1", None, 1.5):
        with pytest.raises(InvalidArgumentError, match="the value must be an integer"):
            call(0, 1 << 20, value, 0)
    for address, said in ((0, "a NULL pointer"), (64, "address 0x40, an offset from a NULL pointer"), (1 << 30, "address 0x40000000")):
        with pytest.raises(OutOfBoundsError, match=said):
            call(0, address, 0, 0)


def test_types_of_the_driver():
    def fn():
        cuda, word = utils.cuda, torch.zeros(1, dtype=torch.int64, device="cuda")
        stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
        utils.CUDA_CHECK(cuda.cuStreamWriteValue32(stream, cuda.CUdeviceptr(word.data_ptr()), cuda.cuuint32_t(3), 0))
        utils.CUDA_CHECK(cuda.cuStreamWaitValue64(stream, word.data_ptr(), cuda.cuuint64_t(3), 0))
        error, current = cuda.cuCtxGetCurrent()
        utils.CUDA_CHECK(error)
        assert int(current) != 0
        return word.item()

    assert on_cuda(fn) == [3]


@pytest.mark.parametrize(
    "module, name",
    [("cuda", "cuLaunchKernel"), ("cuda", "cuStreamBatchMemOp"), ("cuda", "CUmemAllocationProp"), ("cudart", "cudaMalloc")],
)
def test_names_of_the_driver_that_are_not_there(module, name):
    def fn():
        assert not hasattr(getattr(utils, module), name)
        getattr(getattr(utils, module), name)

    with pytest.raises(MissingNameError, match=rf"cuda\.bindings\.\w+\.{name}: the simulator has not this"):
        on_cuda(fn)


def test_what_is_no_name_of_the_driver():
    for module in ("cuda", "cudart"):
        with pytest.raises(AttributeError, match="has no attribute 'launch'"):
            on_cuda(lambda module=module: getattr(utils, module).launch)


def test_fills_and_copies_by_address_are_checked():
    def fn(count):
        x = torch.zeros(8, dtype=torch.int32, device="cuda")
        utils.CUDA_CHECK(utils.cuda.cuMemsetD32Async(x.data_ptr(), 0xFFFFFFFF, count, 0))
        utils.CUDA_CHECK(utils.cudart.cudaMemsetAsync(x.data_ptr(), 1, 4, torch.cuda.current_stream().cuda_stream))
        y = torch.zeros_like(x)
        utils.CUDA_CHECK(utils.cudart.cudaMemcpy(y.data_ptr(), x.data_ptr(), x.nbytes, utils.cudart.cudaMemcpyKind.cudaMemcpyDefault))
        return y.tolist()

    assert on_cuda(lambda: fn(8)) == [[0x01010101] + [-1] * 7]
    with pytest.raises(OutOfBoundsError, match="memset of"):
        on_cuda(lambda: fn(9))


@triton.jit
def double_kernel(x):
    tl.store(x, 2 * tl.load(x))


def test_a_kernel_takes_tensors_of_the_gpu_and_pinned_ones():
    def fn():
        for tensor in (torch.ones(1, device="cuda"), torch.ones(1).pin_memory(), torch.ones(1).cuda()):
            double_kernel[(1,)](tensor)
            torch.cuda.synchronize()
            assert tensor.item() == 2
        double_kernel[(1,)](torch.ones(1))

    with pytest.raises(InvalidArgumentError, match=r"argument 'x' is in the host's memory"):
        on_cuda(fn)


def test_streams_by_torchs_names():
    def fn():
        one, other = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
        assert (
            one != other
            and one == torch.cuda.ExternalStream(one.cuda_stream)
            and hash(one) == hash(torch.cuda.ExternalStream(one.cuda_stream))
        )
        assert torch.cuda.Stream.priority_range() == (0, -5) and other.priority == -1 and "cuda_stream=0x" in repr(other)
        with one, torch.cuda.stream(None):
            assert torch.cuda.current_stream() == one
            with torch.cuda.stream(other):
                assert torch.cuda.current_stream() == other
            assert torch.cuda.current_stream() == one
        torch.cuda.set_stream(other)
        torch.cuda._sleep(1000)
        utils.nvshmem_barrier_all_on_stream(one.cuda_stream)
        event = other.record_event()
        assert isinstance(event, torch.cuda.Event)
        event.synchronize()
        assert event.query() and other.query()

    on_cuda(fn, 2)


def capture(body, prepare=lambda: None):
    """Capture ``body`` on one rank and return the graph."""

    def fn():
        prepared = prepare()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body(prepared)
        return graph

    return fn


@pytest.mark.parametrize(
    "body, said",
    [
        (lambda x: torch.cuda.synchronize(), "would wait for a stream that a CUDA graph captures"),
        (lambda x: x.sum().item(), "would wait for a stream"),
        (lambda x: fork_only(), "have captured work that nothing waits for"),
        (lambda x: torch.cuda.CUDAGraph().capture_begin(), "inside another one"),
        (lambda x: torch.cuda.current_stream().wait_event(elsewhere()), "outside of the capture"),
    ],
)
def test_what_can_not_be_captured(body, said):
    with pytest.raises(CaptureError, match=said):
        on_cuda(capture(body, lambda: torch.ones(4, device="cuda")))


def fork_only():
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.ones(4, device="cuda").add_(1)


def elsewhere():
    event = torch.cuda.Event()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(1 << 20)
        event.record()
    return event


def test_a_graph_that_failed_can_be_captured_again():
    def fn():
        x = torch.ones(4, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(CaptureError, match="holds no graph"):
            graph.replay()
        with pytest.raises(CaptureError, match="default stream"):
            graph.capture_begin()
        with pytest.raises(ZeroDivisionError), torch.cuda.graph(graph):
            raise ZeroDivisionError
        assert not torch.cuda.is_current_stream_capturing()
        with torch.cuda.graph(graph):
            x += 1
        graph.replay(), graph.replay()
        assert x.tolist() == [3.0] * 4
        graph.reset()
        with pytest.raises(CaptureError, match="holds no graph"):
            graph.replay()
        with pytest.raises(InvalidArgumentError, match="CUDAGraph"):
            torch.cuda.graph(None)

    on_cuda(fn)


def test_collectives_are_not_captured():
    def fn():
        torch.distributed.init_process_group("nccl")
        x = torch.ones(4, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            torch.distributed.all_reduce(x)

    with pytest.raises(UnsupportedOperationError, match="can't put collectives into a graph"):
        on_cuda(fn, 2)


def test_another_thread_is_told():
    import threading

    def fn():
        seen = []

        def ask():
            try:
                torch.cuda.current_device()
            except InvalidArgumentError as error:
                seen.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        return seen[0]

    assert "a thread that is no rank's" in on_cuda(fn)[0]
