"""Loading kernels before any of them is launched: what Triton promises for it, and what is asked of the driver."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
from triton_dist import errors
from triton_dist.ops import team
from triton_dist.runtime import preload as module
from triton_dist.runtime.cuda import driver
from triton_dist.runtime.preload import Launch, preload, specialization


@triton.jit
def add_kernel(x, out, count, BLOCK: tl.constexpr):
    offset = tl.arange(0, BLOCK)
    tl.store(out + offset, tl.load(x + offset, mask=offset < count) + 1, mask=offset < count)


class Driver:
    """Stands for cuda-bindings: notes what is called, and knows the capture mode of the thread."""

    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")

    def __init__(self, version: int = 13_000) -> None:
        self.version = version
        self.mode = "global"
        self.calls: list[tuple] = []

    def call(self, name: str, *arguments):
        self.calls.append((name, self.mode, *arguments))
        if name == "cuThreadExchangeStreamCaptureMode":
            before, self.mode = self.mode, arguments[0]
            return before
        return self.version if name == "cuDriverGetVersion" else None


class Kernel:
    """Stands for a JITFunction whose compiled kernel is loaded when ``run`` is read."""

    def __init__(self) -> None:
        self.loaded: list[tuple] = []

    def warmup(self, *arguments, grid, **options):
        kernel = self

        class Compiled:
            function = 77

            @property
            def run(self):
                kernel.loaded.append((arguments, options))

        return Compiled()


@pytest.fixture
def gpu(monkeypatch):
    """A rank on a GPU, as far as ``preload`` looks."""
    fake = Driver()
    monkeypatch.setattr(module, "_loaded", set())
    monkeypatch.setattr(module, "require_world", lambda what: SimpleNamespace(device=torch.device("cuda", 0)))
    monkeypatch.setattr(driver, "bindings", lambda: fake)
    monkeypatch.setattr(driver, "call", fake.call)
    return fake


def test_triton_compiles_in_warmup_and_loads_when_run_is_read(monkeypatch):
    """On every supported version; the simulator's driver stands for CUDA's."""
    functions = []
    monkeypatch.setattr(module, "_load_function", functions.append)

    def run():
        arguments = torch.zeros(8), torch.zeros(8), 8
        compiled = add_kernel.warmup(*arguments, grid=(1,), BLOCK=8)
        assert compiled.function is None
        module.load(Launch(add_kernel, arguments, {"BLOCK": 8}))
        assert compiled.function is not None and functions == [compiled.function]
        assert arguments[1].tolist() == [0.0] * 8  # it was not launched
        launched = add_kernel[(1,)](*arguments, BLOCK=8)
        assert launched is compiled  # the launch finds what was loaded

    triton_dist.simulate(run, 1)


def test_every_kernel_is_loaded_once(gpu):
    kernels = Kernel(), Kernel()
    for _ in range(3):
        preload("op", ("key",), lambda: [Launch(kernels[0], (1, 2), {"TILE": 4}), Launch(kernels[1], ())])
    assert [kernel.loaded for kernel in kernels] == [[((1, 2), {"TILE": 4})], [((), {})]]
    assert [call for call in gpu.calls if call[0] == "cuFuncLoad"] == [("cuFuncLoad", "relaxed", 77)] * 2
    assert gpu.mode == "global"
    preload("op", ("other key",), lambda: [Launch(kernels[0], ())])
    preload("other op", ("key",), lambda: [Launch(kernels[1], ())])
    assert [len(kernel.loaded) for kernel in kernels] == [2, 2]


def test_kernels_with_nvshmem_in_them_are_others(gpu, monkeypatch):
    """A world of peers, one of NVSHMEM, and one of peers again, in one process."""
    kernel = Kernel()
    for library in (None, "libnvshmem_device.bc", None, "libnvshmem_device.bc"):
        monkeypatch.setattr(module, "library_in_use", lambda library=library: library)
        preload("op", (), lambda: [Launch(kernel, ())])
    assert len(kernel.loaded) == 2


def test_a_driver_without_the_call_is_left_alone(gpu):
    gpu.version = 12_030
    preload("op", (), lambda: [Launch(Kernel(), ())])
    assert "cuFuncLoad" not in [call[0] for call in gpu.calls]


def test_a_failure_is_tried_again_and_the_capture_mode_put_back(gpu):
    class Broken:
        def warmup(self, *arguments, grid):
            raise ZeroDivisionError

    kernel = Kernel()
    with pytest.raises(ZeroDivisionError):
        preload("op", (), lambda: [Launch(Broken(), ())])
    assert gpu.mode == "global"
    preload("op", (), lambda: [Launch(kernel, ())])
    assert len(kernel.loaded) == 1


def test_a_kernel_compiled_in_the_background_is_waited_for(gpu):
    class Background:
        def __init__(self, kernel):
            self.kernel = kernel

        def warmup(self, *arguments, grid):
            return SimpleNamespace(result=lambda: self.kernel.warmup(*arguments, grid=grid))

    kernel = Kernel()
    preload("op", (), lambda: [Launch(Background(kernel), (5,))])
    assert kernel.loaded == [((5,), {})]


def test_nothing_is_loaded_in_the_simulator():
    def never():
        raise AssertionError

    triton_dist.simulate(lambda: preload("simulated op", (), never), 2)


def test_needs_a_world():
    with pytest.raises(errors.NotInitializedError, match="my_op"):
        preload("my_op", (), list)


def test_specialization_follows_what_triton_compiles_for():
    """Two argument lists have the same key exactly where Triton makes one kernel for both."""
    base = torch.zeros(65)
    lists = [
        (base, base, count) for count in (1, 2, 16, 17, 32, 1 << 40, (1 << 40) + 1)
    ] + [(base[1:], base, 2), (base.double(), base, 2), (base[4:], base, 3), (base, base[1:], 16)]  # fmt: skip

    def run():
        return [id(add_kernel.warmup(*arguments, grid=(1,), BLOCK=64)) for arguments in lists]

    (kernels,) = triton_dist.simulate(run, 1)
    keys = [specialization(*arguments) for arguments in lists]
    for i, one in enumerate(keys):
        for j, other in enumerate(keys):
            assert (one == other) == (kernels[i] == kernels[j]), (lists[i][2], lists[j][2])
    assert specialization(True, None, 2.5) == (True, None, 2.5)
    hash(specialization(base, 3, "text", torch.float32))


def test_a_workspace_is_not_made_while_a_graph_is_captured(monkeypatch):
    context = SimpleNamespace(stream=1, workspaces={"other": 0}, streams=SimpleNamespace(capturing=True))
    monkeypatch.setattr(team, "require_world", lambda what: context)
    with pytest.raises(errors.CaptureError, match=r"op: .*call it once before"):
        team.workspace("op", "key", lambda: 5)
    context.streams.capturing = False
    assert team.workspace("op", "key", lambda: 5) == 5
    context.streams.capturing = True
    assert team.workspace("op", "key", lambda: 6) == 5


def test_a_graph_on_another_stream_has_the_newest_workspace(monkeypatch):
    """As long as it is captured: what is called there later has its own."""
    context = SimpleNamespace(stream=1, workspaces={}, streams=SimpleNamespace(capturing=False))
    monkeypatch.setattr(team, "require_world", lambda what: context)
    for stream, key in ((1, "key"), (2, "key"), (3, "other key")):
        context.stream = stream
        team.workspace("op", key, lambda stream=stream: f"of stream {stream}")
    team.workspace("other op", "key", lambda: "of another operator")
    context.stream, context.streams.capturing = 9, True
    assert team.workspace("op", "key", lambda: None) == "of stream 2"
    with pytest.raises(errors.CaptureError):
        team.workspace("op", "a third key", lambda: None)
    context.streams.capturing = False
    assert team.workspace("op", "key", lambda: "of stream 9") == "of stream 9"
