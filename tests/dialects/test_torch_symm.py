"""torch's symmetric library over the heap: the page's kernel, its error codes and structs, and what goes beyond the page."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import triton_dist
from tests.dialects import bodies
from triton_dist.dialects import torch_symm
from triton_dist.dialects.torch_symm import kernel as kernel_module
from triton_dist.errors import InvalidArgumentError, MissingCapabilityError, NotInitializedError, NotSymmetricError


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_the_kernel_of_the_page(world, world_size):
    world(bodies.pages_kernel, world_size)


@pytest.mark.parametrize("dtype", bodies.DTYPES, ids=str)
@pytest.mark.parametrize("world_size", [2, 3])
def test_operations_and_types(world, world_size, dtype):
    world(bodies.reduces, world_size, args=(dtype, "constant_kernel"), seed=world_size)


def test_operations_and_types_at_run_time(world):
    world(bodies.reduces, 2, args=(torch.bfloat16, "runtime_kernel"))


def test_error_codes(world):
    world(bodies.error_codes, 2)


def test_not_a_number(world):
    world(bodies.not_a_number, 3)


@pytest.mark.parametrize("seed", range(4))
def test_no_race(seed):
    triton_dist.simulate(bodies.pages_kernel, 3, seed=seed, check="race")
    triton_dist.simulate(bodies.pages_kernel, 2, seed=seed, schedule="late", check="race")


# ---------------------------------------------------------------------- constants and structs


def test_constants():
    values = {name: getattr(torch_symm, name).value for name in torch_symm.__all__ if name.isupper()}
    assert values["BACKEND_DEFAULT"] == values["REDUCE_OP_SUM"] == values["DTYPE_FLOAT32"] == 0
    assert (values["BACKEND_NCCL"], values["BACKEND_NVSHMEM"]) == (1, 2)
    assert (torch_symm.SymmContext.Type.NCCL, torch_symm.SymmContext.Type.NVSHMEM) == (0, 1)
    assert [torch_symm.dtype_code(dtype) for dtype in bodies.DTYPES] == list(range(6))
    with pytest.raises(InvalidArgumentError, match="torch.int8 is not one of torch.float32"):
        torch_symm.dtype_code(torch.int8)


HEADER = """
#include <cstddef>
#include <cstdint>
#include <cstdio>
typedef struct ncclWindow* ncclWindow_t;
struct ncclDevComm;
struct SymmContext {
  enum class Type { NCCL = 0, NVSHMEM = 1 };
  Type type;
  int32_t rank;
  int32_t world_size;
};
struct NCCLSymmContext : public SymmContext {
  ncclWindow_t buffer_window;
  ncclWindow_t signal_window;
  ncclDevComm* dev_comm;
  void* local_buffer;
  size_t buffer_size;
  int32_t device_idx;
};
struct NVSHMEMSymmContext : public SymmContext {
  void* local_buffer;
  size_t buffer_size;
  int32_t device_idx;
  size_t offset;
};
"""
"""The page's structs."""


def fields_of(struct) -> list[str]:
    """All fields, those of the base first."""
    return [name for each in reversed(struct.__mro__) for name, *_ in vars(each).get("_fields_", ())]


def test_layouts():
    """By hand: a pointer begins at a multiple of 8 behind the three words of the head."""
    nvshmem, nccl = torch_symm.NVSHMEMSymmContext, torch_symm.NCCLSymmContext
    assert [getattr(nvshmem, name).offset for name in fields_of(nvshmem)] == [0, 4, 8, 16, 24, 32, 40]
    assert [getattr(nccl, name).offset for name in fields_of(nccl)] == [0, 4, 8, 16, 24, 32, 40, 48, 56]
    assert [ctypes.sizeof(struct) for struct in (torch_symm.SymmContext, nvshmem, nccl)] == [12, 48, 64]


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_layouts_as_compiled(tmp_path):
    """What a C++ compiler makes of the page's text."""
    structs = (torch_symm.SymmContext, torch_symm.NCCLSymmContext, torch_symm.NVSHMEMSymmContext)
    lines, expected = [], []
    for struct in structs:
        name = struct.__name__
        lines += [f'printf("%zu ", offsetof({name}, {field}));' for field in fields_of(struct)]
        lines.append(f'printf("%zu ", sizeof({name}));')
        expected += [*(getattr(struct, field).offset for field in fields_of(struct)), ctypes.sizeof(struct)]
    source = tmp_path / "layout.cpp"
    source.write_text(HEADER + "int main() { " + " ".join(lines) + " }\n")
    subprocess.run(["g++", "-Wno-invalid-offsetof", "-o", tmp_path / "layout", source], check=True, timeout=120)
    said = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert [int(number) for number in said.split()] == expected


def test_make_context():
    def body():
        buffer = triton_dist.symm_zeros((6, 4), torch.int16)
        context = torch_symm.make_context(buffer[2:])
        read = torch_symm.NVSHMEMSymmContext.from_buffer_copy(bytes(context.tolist()))
        assert (read.type, read.rank, read.world_size, read.device_idx) == (1, triton_dist.rank(), 2, 0)
        assert (read.local_buffer, read.buffer_size) == (buffer[2:].data_ptr(), 32)
        with pytest.raises(InvalidArgumentError, match="contiguous"):
            torch_symm.make_context(buffer.t())
        with pytest.raises(InvalidArgumentError, match="buffer=3"):
            torch_symm.make_context(3)
        with pytest.raises(NotSymmetricError, match="ordinary memory"):
            torch_symm.make_context(torch.zeros(3))
        return read.offset

    offsets = triton_dist.simulate(body, 2)
    assert offsets[0] == offsets[1]
    with pytest.raises(NotInitializedError, match="make_context"):
        torch_symm.make_context(torch.zeros(3))


# ---------------------------------------------------------------------- the decorator, and libraries


@triton.jit
def any_kernel(out):
    tl.store(out, 1)


def test_the_decorator():
    for made in (
        torch_symm.requires_torch_symm(any_kernel),
        torch_symm.requires_torch_symm(backend=torch_symm.BACKEND_NVSHMEM)(any_kernel),
        torch_symm.requires_torch_symm(1)(triton_dist.jit(any_kernel.fn)),
    ):
        out = torch.zeros(1)
        made[(1,)](out)
        assert out.item() == 1 and made.__name__ == "any_kernel" and made.arg_names == ["out"]
    tuned = triton.autotune([triton.Config({}), triton.Config({}, num_warps=8)], [])(torch_symm.requires_torch_symm(any_kernel))
    tuned[(1,)](torch.zeros(1))


def test_a_buffer_that_is_not_of_all_ranks_or_not_this_ranks():
    def body():
        rank = triton_dist.rank()
        team = triton_dist.make_team([0, 1] if rank < 2 else [2, 3])
        of_team = triton_dist.symm_zeros((16,), group=team)
        with pytest.raises(InvalidArgumentError, match=r"one of ranks \[(0, 1|2, 3)\], and symm_all_reduce is a call of all 4"):
            torch_symm.make_context(of_team)
        own = triton_dist.symm_zeros((16,))
        with pytest.raises(InvalidArgumentError, match=f"the buffer is rank {3 - rank}'s part, and this is rank {rank}"):
            torch_symm.make_context(triton_dist.symm_peer(own, 3 - rank))
        torch_symm.make_context(own), torch_symm.make_context(triton_dist.symm_peer(own, rank))

    triton_dist.simulate(body, 4)


@pytest.mark.parametrize("bad", [None, "x", 5, b"abc", [1, 2], torch_symm.SymmContext])
def test_what_is_no_context(bad):
    with pytest.raises(InvalidArgumentError, match="on_device: .* must be a SymmContext"):
        torch_symm.on_device(bad)


@pytest.mark.parametrize("bad", [[], {}, None, "float32", int, torch.int8, 5])
def test_what_is_no_dtype(bad):
    with pytest.raises(InvalidArgumentError, match="symm_all_reduce: .* is not one of torch.float32"):
        torch_symm.dtype_code(bad)


@pytest.mark.parametrize("bad", [3, -1, 1.5, 1.0, True, "NVSHMEM", None, [], {}, tl.constexpr([])])
def test_bad_backends(bad):
    with pytest.raises(InvalidArgumentError, match="is not one of BACKEND_DEFAULT, BACKEND_NCCL, BACKEND_NVSHMEM"):
        torch_symm.requires_torch_symm(backend=bad)


def test_bad_kernels():
    for bad in (any_kernel.fn, "kernel"):
        with pytest.raises(InvalidArgumentError, match="decorates a kernel"):
            torch_symm.requires_torch_symm(bad)
        with pytest.raises(InvalidArgumentError, match="decorates a kernel"):
            torch_symm.requires_torch_symm()(bad)


class GpuWorld:
    """As far as libraries are concerned."""

    device = torch.device("cuda")
    uses_nvshmem = False


@pytest.fixture
def gpu_world(monkeypatch):
    world = GpuWorld()
    monkeypatch.setattr(kernel_module, "current_world", lambda: world)
    for name in ("TORCH_SYMM_LIB_PATH", "NVSHMEM_LIB_DIR"):
        monkeypatch.delenv(name, raising=False)
    return world


def test_libraries(gpu_world, tmp_path, monkeypatch):
    default, nccl = 0, 1
    assert kernel_module.libraries_for(default) == {}, "the functions of this package need none"
    torchs, nvshmem = tmp_path / "torch_symm.bc", tmp_path / "libnvshmem_device.bc"
    monkeypatch.setenv("TORCH_SYMM_LIB_PATH", str(torchs))
    with pytest.raises(MissingCapabilityError, match="TORCH_SYMM_LIB_PATH=.*there is no file .*torch_symm.bc"):
        kernel_module.libraries_for(default)
    torchs.write_bytes(b"")
    with pytest.raises(MissingCapabilityError, match='initialize.shmem="nvshmem".*or unset TORCH_SYMM_LIB_PATH'):
        kernel_module.libraries_for(default)
    monkeypatch.setenv("NVSHMEM_LIB_DIR", str(tmp_path))
    with pytest.raises(MissingCapabilityError, match="NVSHMEM_LIB_DIR=.*there is no file .*libnvshmem_device.bc"):
        kernel_module.libraries_for(default)
    nvshmem.write_bytes(b"")
    assert kernel_module.libraries_for(default) == {"torch_symm": str(torchs), "libnvshmem_device": str(nvshmem)}
    assert kernel_module.libraries_for(nccl) == {}, "there is nothing of NCCL to link"
    monkeypatch.delenv("TORCH_SYMM_LIB_PATH")
    gpu_world.uses_nvshmem = True
    assert kernel_module.libraries_for(default) == {"libnvshmem_device": str(nvshmem)}
    monkeypatch.delenv("NVSHMEM_LIB_DIR")
    with pytest.raises(MissingCapabilityError, match="not in use any more"):
        kernel_module.libraries_for(default)


def test_no_library_on_the_simulator(monkeypatch):
    """There the variables, which may be set for jobs on GPUs, do not count."""
    monkeypatch.setenv("TORCH_SYMM_LIB_PATH", "/no/such/file.bc")
    triton_dist.simulate(bodies.pages_kernel, 2)


LIBRARY = """
define i32 @symm_all_reduce(i64 %context, i64 %local, i32 %offset, i32 %count, i32 %op, i32 %dtype) {
  %a = mul i32 %count, 12345
  %b = add i32 %a, %dtype
  ret i32 %b
}
"""
"""Stands for torch's, in LLVM's text form."""


def ptx_of(constants, target=GPUTarget("cuda", 90, 32), **options) -> str:  # noqa: B008
    kernel = bodies.constant_kernel.fn
    types = {"context": "*u8", "buffer": "*fp32", "offset": "i32", "count": "i32", "status": "*i32"}
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, constants, {})
    return triton.compile(source, target=target, options=options).asm["ptx" if target.backend == "cuda" else "amdgcn"]


def test_a_library_that_is_linked(tmp_path):
    """With TORCH_SYMM_LIB_PATH the call is the library's; nothing of this package's own is left."""
    path = tmp_path / "torch_symm.ll"
    path.write_text(LIBRARY)
    constants = {"OP": 0, "DTYPE": 0, "HINT": 0}
    linked, own = ptx_of(constants, extern_libs={"torch_symm": str(path)}), ptx_of(constants)
    assert "12345" in linked and "acquire.sys" not in linked and ".extern" not in linked
    assert "12345" not in own and "acquire.sys" in own
    assert "12345" not in ptx_of({**constants, "HINT": 1}, extern_libs={"torch_symm": str(path)}), "NCCL has no library"


@pytest.mark.parametrize("target", [GPUTarget("cuda", 80, 32), GPUTarget("cuda", 100, 32), GPUTarget("hip", "gfx942", 64)], ids=str)
def test_other_gpus(target):
    assert ptx_of({"OP": 1, "DTYPE": 2, "HINT": 0}, target)


@pytest.mark.parametrize("constants", [{"OP": 99, "DTYPE": 0, "HINT": 0}, {"OP": 0, "DTYPE": 0, "HINT": 2}])
def test_constants_leave_nothing_to_choose(constants):
    """A float32 sum has code for that only: one kind of load of the ranks' buffers."""
    text = ptx_of(constants)
    assert "f64" not in text and "f16" not in text and "bf16" not in text
