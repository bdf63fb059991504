"""What scripts ask of torch.cuda beyond streams and tensors: it answers, or is refused by name; never an error of torch's own."""

import io
import threading

import pytest
import torch
import triton
import triton.language as tl

from triton_dist.errors import InvalidArgumentError, MissingNameError, TritonDistError, UnsupportedOperationError
from triton_dist.tools.run.simulated import simulated_cuda


def on_cuda(fn, world_size=1, **options):
    with simulated_cuda() as run:
        return run(fn, world_size, **options)


def test_record_stream_takes_the_simulators_streams():
    def fn():
        x, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
        for stream in (torch.cuda.current_stream(), side, torch.Stream(device="cuda"), torch.cuda.ExternalStream(side.cuda_stream)):
            assert x.record_stream(stream) is None
            assert (x * 2).view(2, 2).record_stream(stream) is None
        for wrong in (None, 99, "side"):
            with pytest.raises(InvalidArgumentError):
                x.record_stream(wrong)

    on_cuda(fn, 2)


ANSWERS = [
    (lambda: torch.cuda.memory_stats()["allocated_bytes.all.peak"], 0),
    (lambda: torch.cuda.memory_stats()["num_alloc_retries"], 0),
    (lambda: torch.cuda.memory_stats().get("no such key"), None),
    (lambda: set(torch.cuda.memory.memory_stats().values()), {0}),
    (lambda: torch.cuda.memory_stats_as_nested_dict()["reserved_bytes"]["all"]["current"], 0),
    (lambda: torch.cuda.memory_snapshot(), []),
    (lambda: torch.cuda.get_allocator_backend(), "native"),
    *(
        (lambda name=name: getattr(torch.cuda, name)(), None)
        for name in (
            *("reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"),
            *("empty_cache", "ipc_collect", "seed", "seed_all"),
        )
    ),
    (lambda: isinstance(torch.Stream(device="cuda"), torch.cuda.Stream), True),
    (lambda: torch.Stream().device.type, "cuda"),
    (lambda: isinstance(torch.cuda.Event(), torch.Event), True),
    (lambda: torch.Event(device="cuda", enable_timing=True).query(), True),
    (lambda: torch.Event().device.type, "cuda"),
    (lambda: torch.cuda.default_generators[0] is torch.default_generator, True),
    (lambda: len(torch.cuda.default_generators), 2),
    (lambda: len(list(torch.cuda.default_generators)), 2),
    (lambda: len(torch.cuda.get_rng_state_all()), 2),
    (lambda: torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all()), None),
    (lambda: torch.Generator(device="cuda").device.type, "cuda"),
    (lambda: torch.Generator().device.type, "cpu"),
    (lambda: torch.rand(2, device="cuda", generator=torch.Generator(device="cuda").manual_seed(1)).is_cuda, True),
    (lambda: torch.cuda.nccl.version() > (2, 10), True),
    (lambda: torch.cuda.get_device_properties().gcnArchName == torch.cuda.get_device_name(), True),
    (lambda: torch._C._cuda_getCurrentRawStream(torch.cuda.current_device()) == torch.cuda.current_stream().cuda_stream, True),
    (lambda: torch._C._cuda_getDevice() == torch.cuda.current_device(), True),
    (lambda: torch.empty(4, pin_memory=True).is_pinned(), True),
    (lambda: torch.zeros(4, pin_memory=False).is_pinned(), False),
    (lambda: torch.cuda.cudart().cudaProfilerStart() + torch.cuda.cudart().cudaProfilerStop(), 0),
    (lambda: torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart()), None),
    (lambda: (torch.cuda.profiler.start(), torch.cuda.profiler.stop()), (None, None)),
    (lambda: torch.cuda.profiler.profile().__enter__(), None),
    (lambda: torch.cuda.get_sync_debug_mode(), 0),
    (lambda: (torch.cuda.set_sync_debug_mode("warn"), torch.cuda.get_sync_debug_mode())[1], 1),
    (lambda: torch.cuda.device(0).__enter__(), None),
    (lambda: torch.cuda.device_of(torch.zeros(1)).__enter__(), None),
    (lambda: hasattr(torch._C, "_cuda_memorySnapshot"), False),
]


@pytest.mark.parametrize("ask, answer", ANSWERS)
def test_answers(ask, answer):
    assert on_cuda(ask, 2) == [answer] * 2


REFUSED = [
    (lambda: torch.cuda.caching_allocator_alloc(10), "torch.cuda.caching_allocator_alloc has no meaning"),
    (lambda: torch.cuda.current_blas_handle(), "torch.cuda.current_blas_handle has no meaning"),
    (lambda: torch.cuda.tunable.enable(), "torch.cuda.tunable.enable has no meaning"),
    (lambda: torch._C._cuda_hostMemoryStats(), "torch._C._cuda_hostMemoryStats has no meaning"),
    (lambda: torch.cuda.utilization(), "torch.cuda.utilization has no meaning"),
    (lambda: torch.cuda.CUDAGraph().debug_dump("x"), "CUDAGraph.debug_dump"),
    (lambda: torch.cuda.Event().ipc_handle(), "Event.ipc_handle"),
    (lambda: torch.cuda.Event.from_ipc_handle("cuda", b""), "Event.from_ipc_handle"),
    (lambda: torch.cuda.cudart().cudaHostRegister(0, 1, 0), r"cudart\(\).cudaHostRegister has no meaning"),
    (lambda: torch._C._cuda_getAllocator(), "torch._C._cuda_getAllocator has no meaning"),
    (lambda: torch.set_default_tensor_type(torch.cuda.FloatTensor), "torch.set_default_device"),
]


@pytest.mark.parametrize("ask, said", REFUSED)
def test_refused_by_name(ask, said):
    with pytest.raises(UnsupportedOperationError, match=said):
        on_cuda(ask)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.Stream(device="cpu"),
        lambda: torch.Event(device="cpu"),
        lambda: torch.cuda.Stream(device="cuda:1"),
        lambda: torch.cuda.default_generators[1],
        lambda: torch.cuda.set_rng_state_all([]),
        lambda: torch.cuda.set_sync_debug_mode("loud"),
        lambda: torch.ones(1).type("torch.cuda.QuarterTensor"),
        lambda: torch.cuda.FloatTensor(2, device="cpu"),
        lambda: triton.testing.do_bench(lambda: None, return_mode="best"),
        lambda: triton.testing.do_bench(lambda: None, quantiles=[2.0]),
    ],
)
def test_mistakes_are_named(ask):
    with pytest.raises(InvalidArgumentError):
        on_cuda(ask)


def test_missing_names_of_torch_are_missing_outside_of_scripts():
    with pytest.raises(AttributeError) as caught:
        torch._C._cuda_no_such_name  # noqa: B018
    assert not isinstance(caught.value, TritonDistError)
    with pytest.raises(MissingNameError):
        on_cuda(lambda: torch._C._cuda_no_such_name)
    with pytest.raises(AttributeError, match="no_such_name"):
        on_cuda(lambda: torch._C.no_such_name)


DTYPES = {
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "ShortTensor": torch.int16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "BoolTensor": torch.bool,
}


@pytest.mark.parametrize("name", DTYPES)
def test_types_of_tensors_by_name(name):
    def fn():
        dtype, kind = DTYPES[name], getattr(torch.cuda, name)
        for made, shape in ((kind(3), (3,)), (kind(2, 3), (2, 3)), (kind(torch.Size([2])), (2,)), (kind([1, 0]), (2,)), (kind(), (0,))):
            assert made.is_cuda and made.dtype == dtype and made.shape == shape
            assert isinstance(made, kind) and made.type() == f"torch.cuda.{name}" and not isinstance(made.cpu(), kind)
        host = torch.ones(3)
        assert kind([1, 0]).tolist() == [1, 0] and kind(host).is_cuda and not host.is_cuda
        for wanted in (f"torch.cuda.{name}", kind):
            moved = host.type(wanted)
            assert moved.is_cuda and moved.dtype == dtype and not host.is_cuda
        back = host.cuda().type(f"torch.{name}")
        assert not back.is_cuda and back.dtype == dtype and back.type() == f"torch.{name}"
        assert not host.type(dtype).is_cuda and host.cuda().type(dtype).is_cuda

    on_cuda(fn)


@pytest.mark.parametrize("place, on_gpu", [("cuda", True), ("cuda:0", True), (torch.device("cuda"), True), ("cpu", False), (None, False)])
def test_load_puts_tensors_where_it_is_told(place, on_gpu):
    def fn():
        file = io.BytesIO()
        torch.save({"weight": torch.arange(4.0), "list": [torch.ones(2, device="cuda")]}, file)
        file.seek(0)
        loaded = torch.load(file, map_location=place)
        assert loaded["weight"].tolist() == [0, 1, 2, 3] and not torch.zeros(1).is_cuda
        return loaded["weight"].is_cuda, loaded["list"][0].is_cuda

    assert on_cuda(fn) == [(on_gpu, on_gpu)]


def test_load_onto_another_ranks_gpu_is_refused():
    with pytest.raises(UnsupportedOperationError, match="has one GPU"):
        on_cuda(lambda: torch.load(io.BytesIO(), map_location="cuda:1"))


@triton.jit
def add_one_kernel(x, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < count) + 1, mask=at < count)


@pytest.mark.parametrize("size", [100, 1000])
def test_do_bench_runs_few_times_in_simulated_time(size):
    def fn():
        x = torch.zeros(size, device="cuda")
        launch = lambda: add_one_kernel[(triton.cdiv(size, 64),)](x, size, BLOCK=64)  # noqa: E731
        mean = triton.testing.do_bench(launch, warmup=1000, rep=1000)
        assert mean > 0 and 2 <= x[0].item() <= 8
        low, high = triton.testing.do_bench(launch, quantiles=[0.2, 0.8])
        assert 0 < low <= high and isinstance(triton.testing.do_bench(launch, quantiles=[0.5]), float)
        times = triton.testing.do_bench(launch, return_mode="all")
        assert len(times) > 1 and min(times) > 0
        return mean

    assert on_cuda(fn) == on_cuda(fn)


def test_do_bench_is_bounded_as_perf_func_is(monkeypatch):
    monkeypatch.setenv("TRITON_DIST_PERF_ITERS", "1")
    assert on_cuda(lambda: len(triton.testing.do_bench(lambda: torch.ones(3, device="cuda").sum(), return_mode="all"))) == [1]


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda: torch.ones(2, device="cuda"), "torch.ones"),
        (lambda: torch.ones(2).to("cuda"), r"torch.ones\(2\).to"),
        (lambda: torch.nn.Linear(2, 2).cuda(), r"torch.nn.Linear\(2, 2\).cuda"),
        (lambda: torch.cuda.memory_stats(), "torch.cuda.memory_stats"),
        (lambda: torch.cuda.current_blas_handle(), "torch.cuda.current_blas_handle"),
        (lambda: torch.cuda.synchronize(), "torch.cuda.synchronize"),
        (lambda: torch.cuda.Event(), "torch.Event"),
    ],
)
def test_a_call_in_a_thread_that_is_no_rank_is_named(use, said):
    def fn():
        seen = []

        def ask():
            try:
                use()
            except TritonDistError as error:
                seen.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        raise seen[0]

    with pytest.raises((InvalidArgumentError, UnsupportedOperationError), match=said):
        on_cuda(fn)
