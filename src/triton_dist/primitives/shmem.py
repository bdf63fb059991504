"""Lowering of the SHMEM names for GPUs whose ranks reach each other's symmetric heap directly: NVLink or PCIe peer access.

The functions themselves are jit functions in ``shmem_device.py``. Here is what they need of the target: one unit of a copy, which
threads act together, and the fences. None of it is for warp-specialised loops, where the threads of a block are not the block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import arguments, cuda, hip
from triton_dist.primitives.call import Call, Lowering, call_function, constant, inline_asm

_COMPARISONS = ("eq", "ne", "gt", "le", "lt", "ge")
"""By the value of the NVSHMEM_CMP constants."""

_SIGNAL_OPERATIONS = {9: "set", 10: "add"}
"""By the value of the NVSHMEM_SIGNAL constants."""

PLACE_BITS = 16
"""``group_place`` has the thread's index in the bits below, and the number of threads above."""

_FIRST_WITH_TMA = 90
_HIP_WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
_HIP_LOADS = {1: "ubyte", 2: "ushort", 4: "dword", 8: "dwordx2", 16: "dwordx4"}
_HIP_STORES = {1: "byte", 2: "short", 4: "dword", 8: "dwordx2", 16: "dwordx4"}


@tl.core.builtin
def comparison(cmp_, function, _semantic=None):
    """The name of an NVSHMEM_CMP constant, constexpr. Raises PrimitiveArgumentError."""
    seen = arguments.unwrap(cmp_)
    if not isinstance(seen, int) or isinstance(seen, bool) or not 0 <= seen < len(_COMPARISONS):
        allowed = "one of NVSHMEM_CMP_EQ, NE, GT, LE, LT, GE (0 to 5), known when the kernel is compiled"
        raise arguments.fail(arguments.unwrap(function), "cmp_", cmp_, allowed)
    return tl.constexpr(_COMPARISONS[seen])


@tl.core.builtin
def signal_operation(sig_op, function, _semantic=None):
    """The name of an NVSHMEM_SIGNAL constant, constexpr. Raises PrimitiveArgumentError."""
    seen = arguments.unwrap(sig_op)
    if isinstance(seen, bool) or not isinstance(seen, int) or seen not in _SIGNAL_OPERATIONS:
        allowed = "NVSHMEM_SIGNAL_SET (9) or NVSHMEM_SIGNAL_ADD (10), known when the kernel is compiled"
        raise arguments.fail(arguments.unwrap(function), "sig_op", sig_op, allowed)
    return tl.constexpr(_SIGNAL_OPERATIONS[seen])


@tl.core.builtin
def element_bytes(ptr, function, _semantic=None):
    """Bytes of the elements that a pointer points to, constexpr. Raises PrimitiveArgumentError for what is no pointer to whole bytes."""
    kind = getattr(ptr, "dtype", None)
    if not isinstance(ptr, tl.tensor) or not kind.is_ptr() or kind.element_ty.is_ptr() or kind.element_ty.primitive_bitwidth % 8:
        raise arguments.fail(arguments.unwrap(function), "dest", ptr, "a scalar pointer to elements of whole bytes")
    return tl.constexpr(kind.element_ty.primitive_bitwidth // 8)


@tl.core.builtin
def group_place(LEVEL, _semantic=None):
    """The calling thread's index in the group that makes the call, and above ``PLACE_BITS`` how many threads that has; int32.

    A warp's threads are those that are here: all of them, unless the kernel lets only some come, which then do all the work.
    """
    level = arguments.unwrap(LEVEL)
    options = _semantic.builder.options
    if level == "thread":
        return constant(_semantic, 1 << PLACE_BITS, tl.int32)
    if level == "warp" and not _is_hip(_semantic):
        text = (
            "{ .reg .b32 %here; .reg .b32 %below; .reg .b32 %count; activemask.b32 %here; mov.u32 %below, %lanemask_lt;"
            f" and.b32 %below, %below, %here; popc.b32 %below, %below; popc.b32 %count, %here; shl.b32 %count, %count, {PLACE_BITS};"
            " or.b32 $0, %below, %count; }"
        )
        return inline_asm(_semantic, text, "=r", [], tl.int32, pure=False)
    thread = _thread_index(_semantic)
    warp_size = getattr(options, "warp_size", 32)
    threads = warp_size if level == "warp" else warp_size * options.num_warps
    index = _semantic.and_(thread, constant(_semantic, threads - 1, tl.int32)) if level == "warp" else thread
    return _semantic.or_(index, constant(_semantic, threads << PLACE_BITS, tl.int32))


@tl.core.builtin
def enter_group(LEVEL, _semantic=None):
    """What the group's threads stored before, TMA stores too, is there for each of them, and released by whoever of them releases."""
    if _has_tma(_semantic):
        _ptx(_semantic, "cp.async.bulk.wait_group 0;")
    _sync(_semantic, arguments.unwrap(LEVEL))


@tl.core.builtin
def leave_group(LEVEL, INCOMING, _semantic=None):
    """All threads of the group have done their part. INCOMING: data has come, and TMA loads have to see it, too."""
    if arguments.unwrap(INCOMING) and _has_tma(_semantic):
        _ptx(_semantic, "fence.proxy.async;")
    _sync(_semantic, arguments.unwrap(LEVEL))


@tl.core.builtin
def copy_units(to, start, stride, WIDTH, COUNT, _semantic=None):
    """Copies COUNT units of WIDTH bytes, ``stride`` apart, from address ``start`` to address ``to``; loads all before it stores any."""
    width, count = arguments.unwrap(WIDTH), arguments.unwrap(COUNT)
    emit = _copy_on_hip if _is_hip(_semantic) else _copy_in_ptx
    emit(_semantic, width, count, [to, start, _semantic.cast(_semantic.to_tensor(stride), tl.int64)])


def _copy_in_ptx(semantic: Any, width: int, count: int, operands: list[tl.tensor]) -> None:
    register = {1: "b16", 2: "b16", 4: "b32", 8: "b64", 16: "b32"}[width]
    kind = {1: "b8", 2: "b16", 4: "b32", 8: "b64", 16: "v4.b32"}[width]
    per_unit = 4 if width == 16 else 1
    names = [[f"%v{unit * per_unit + part}" for part in range(per_unit)] for unit in range(count)]
    values = [f"{{{', '.join(unit)}}}" if per_unit > 1 else unit[0] for unit in names]
    lines = [f".reg .{register} {', '.join(name for unit in names for name in unit)};"]
    if count > 1:
        lines += [f".reg .b64 %from<{count}>, %to<{count}>; mov.b64 %from0, $2; mov.b64 %to0, $1;"]
        lines += [f"add.s64 %{side}{unit}, %{side}{unit - 1}, $3;" for side in ("from", "to") for unit in range(1, count)]
    sources = [f"%from{unit}" for unit in range(count)] if count > 1 else ["$2"]
    targets = [f"%to{unit}" for unit in range(count)] if count > 1 else ["$1"]
    lines += [f"ld.global.{kind} {value}, [{source}];" for value, source in zip(values, sources, strict=True)]
    lines += [f"st.global.{kind} [{target}], {value};" for value, target in zip(values, targets, strict=True)]
    inline_asm(semantic, "{ " + "\n".join([*lines, "mov.u32 $0, 0;"]) + " }", "=r,l,l,l", operands, tl.int32, pure=False)


def _copy_on_hip(semantic: Any, width: int, count: int, operands: list[tl.tensor]) -> None:
    """Loads and stores at system scope, which pass the caches that peers don't see; one unit after the other."""
    _require_assembly(semantic, "a copy")
    registers = {16: "v[4:7]", 8: "v[4:5]"}.get(width, "v4")
    for unit in range(count):
        shift = semantic.mul(operands[2], constant(semantic, unit, tl.int64), False)
        to, start = (semantic.add(operand, shift, False) for operand in operands[:2])
        lines = [
            f"global_load_{_HIP_LOADS[width]} {registers}, $2, off sc0 sc1",
            _HIP_WAIT,
            f"global_store_{_HIP_STORES[width]} $1, {registers}, off sc0 sc1",
            "v_mov_b32 $0, 0",
        ]
        clobbers = ",".join(f"~{{v{number}}}" for number in range(4, 8))
        inline_asm(semantic, "\n".join(lines), f"=&v,v,v,{clobbers}", [to, start], tl.int32, pure=False)


def quiet(semantic: Any, call: Call) -> None:
    """Everything that the thread has done is done, for all GPUs; the order of it is the same for all."""
    if _is_hip(semantic):
        _hip_fence(semantic)
    else:
        _ptx(semantic, f"{_bulk_wait(semantic)} fence.sc.sys;")


def fence(semantic: Any, call: Call) -> None:
    """What the thread has stored comes before what it stores later, for all GPUs."""
    if _is_hip(semantic):
        _hip_fence(semantic)
    else:
        _ptx(semantic, f"{_bulk_wait(semantic)} fence.acq_rel.sys;")


def signal_wait(semantic: Any, call: Call) -> tl.tensor:
    """One thread's wait for one word, which on NVIDIA GPUs ends as a ``wait`` ends that takes too long."""
    if _is_hip(semantic):
        from triton_dist.primitives import functions

        return call_function(call, functions.poll, [call["sig_addr"], call["cmp_val"], tl.constexpr(call.choice("cmp"))])
    return cuda.poll(semantic, call.generator, call["sig_addr"], call["cmp_val"], call.choice("cmp"))


def _device_function(name: str, operands: Sequence[str], choices: Sequence[str] = ()) -> Lowering:
    """The lowering that calls a function of ``shmem_device`` with these operands and compile-time choices."""

    def lower(semantic: Any, call: Call) -> Any:
        # That module uses the primitives themselves, which need this one to be loaded first.
        from triton_dist.primitives import shmem_device

        values = [call[operand] for operand in operands]
        values += [tl.constexpr(call.choice(choice)) for choice in choices]
        return call_function(call, getattr(shmem_device, name), values)

    return lower


def _is_hip(semantic: Any) -> bool:
    return semantic.builder.options.backend_name == "hip"


def _has_tma(semantic: Any) -> bool:
    return not _is_hip(semantic) and cuda.capability(semantic) >= _FIRST_WITH_TMA


def _bulk_wait(semantic: Any) -> str:
    return "cp.async.bulk.wait_group 0;" if _has_tma(semantic) else ""


def _ptx(semantic: Any, text: str) -> None:
    inline_asm(semantic, f"{text} mov.u32 $0, 0;", "=r", [], tl.int32, pure=False)


def _sync(semantic: Any, level: str) -> None:
    if level == "block":
        semantic.debug_barrier()
    elif level == "warp" and _is_hip(semantic):
        _hip_fence(semantic)
    elif level == "warp":
        _ptx(semantic, "bar.warp.sync 0xffffffff;")


def _thread_index(semantic: Any) -> tl.tensor:
    if not _is_hip(semantic):
        return inline_asm(semantic, "mov.u32 $0, %tid.x;", "=r", [], tl.int32, pure=True)
    builder = semantic.builder
    return tl.tensor(builder.create_extern_elementwise("", "", "llvm.amdgcn.workitem.id.x", [], tl.int32.to_ir(builder), True), tl.int32)


def _require_assembly(semantic: Any, what: str) -> None:
    arch = re.split(":", semantic.builder.options.arch)[0]
    if arch not in hip.ASSEMBLY_TARGETS:
        raise PrimitiveArgumentError(
            f"{what} of libshmem_device is not implemented for {arch}; implemented for: {', '.join(hip.ASSEMBLY_TARGETS)}"
        )


def _hip_fence(semantic: Any) -> None:
    """Writes back and invalidates the caches at system scope."""
    _require_assembly(semantic, "a fence")
    lines = ["buffer_wbl2 sc0 sc1", _HIP_WAIT, "buffer_inv sc0 sc1", "v_mov_b32 $0, 0"]
    inline_asm(semantic, "\n".join(lines), "=&v", [], tl.int32, pure=False)


_COPY = ("dest", "source", "bytes", "pe")

LOWERINGS: dict[str, Lowering] = {
    "remote_ptr": _device_function("remote_ptr", ["local_ptr", "pe"]),
    "remote_mc_ptr": _device_function("remote_mc_ptr", ["ptr", "team"]),
    "team_my_pe": _device_function("team_my_pe", ["team"]),
    "team_n_pes": _device_function("team_n_pes", ["team"]),
    "team_translate_pe": _device_function("team_translate_pe", ["src_team", "pe_in_src_team", "dest_team"]),
    "shmem_put": _device_function("put", _COPY, ["level"]),
    "shmem_get": _device_function("get", _COPY, ["level"]),
    "shmem_put_signal": _device_function("put_signal", ["dest", "source", "bytes", "sig_addr", "signal", "pe"], ["level", "sig_op"]),
    "shmem_signal": _device_function("signal", ["sig_addr", "signal", "pe"], ["sig_op"]),
    "shmem_signal_wait": signal_wait,
    "shmem_p": _device_function("store_scalar", ["dest", "value", "pe"]),
    "shmem_g": _device_function("load_scalar", ["source", "pe"]),
    "shmem_barrier": _device_function("barrier", ["team"], ["level"]),
    "shmem_quiet": quiet,
    "shmem_fence": fence,
    "shmem_broadcast": _device_function("broadcast", ["team", "dest", "source", "bytes", "pe_root"], ["level"]),
    "shmem_fcollect": _device_function("fcollect", ["team", "dest", "source", "bytes"], ["level"]),
}
"""The SHMEM rows of the table, on NVIDIA and AMD GPUs. A blocking and a non-blocking copy are the same here."""
