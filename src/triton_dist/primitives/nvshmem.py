"""Lowering of the SHMEM names to NVSHMEM's own device functions, in kernels that are compiled with its device library.

The library, ``libnvshmem_device.bc``, is given by the option ``extern_libs`` under the name ``LIBRARY``, so that its content is part of
Triton's cache key; ``triton_dist.jit`` kernels get it where ``initialize(shmem="nvshmem")`` was called.

Symmetric memory is this package's heap, which NVSHMEM knows under other addresses, a constant distance away: the distance is a word of the
context page. What is not of NVSHMEM's vocabulary (``symm_at``, ``notify``, ``wait``, ...) is as without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import bitcode, cuda, shmem
from triton_dist.primitives.bitcode import ADDRESS, Signature
from triton_dist.primitives.call import Call, Lowering, constant, from_carrier, inline_asm
from triton_dist.runtime import context_layout
from triton_dist.runtime.address_map import FIRST_SLOT, STRIDE_BITS

LIBRARY = "libnvshmem_device"
"""The name of the library among the options of a compilation."""

_COMPARISONS = {"eq": 0, "ne": 1, "gt": 2, "le": 3, "lt": 4, "ge": 5}
_SIGNAL_OPERATIONS = {"set": 9, "add": 10}
_LEVELS = {"thread": ("nvshmem", ""), "warp": ("nvshmemx", "_warp"), "block": ("nvshmemx", "_block")}


def is_given(options: Any) -> bool:
    """Whether a compilation has NVSHMEM's device library."""
    return LIBRARY in dict(getattr(options, "extern_libs", None) or ())


def signature(primitive: str, level: str = "", nbi: int = 0, completes: int = 0, bits: int = 0) -> Signature:
    """The function of NVSHMEM behind a row of the table, with its choices; bits: of the scalar that p and g move."""
    prefix, suffix = _LEVELS[level or "thread"]
    later = "_nbi" if nbi else ""
    copy = (ADDRESS, ADDRESS, "int64")
    meeting = "barrier" if completes else "team_sync"
    rows = {
        "remote_mc_ptr": Signature("nvshmemx_mc_ptr", ("int32", ADDRESS), ADDRESS),
        "team_my_pe": Signature("nvshmem_team_my_pe", ("int32",), "int32"),
        "team_n_pes": Signature("nvshmem_team_n_pes", ("int32",), "int32"),
        "team_translate_pe": Signature("nvshmem_team_translate_pe", ("int32", "int32", "int32"), "int32"),
        "shmem_put": Signature(f"{prefix}_putmem{later}{suffix}", (*copy, "int32"), ""),
        "shmem_get": Signature(f"{prefix}_getmem{later}{suffix}", (*copy, "int32"), ""),
        "shmem_put_signal": Signature(f"{prefix}_putmem_signal{later}{suffix}", (*copy, ADDRESS, "int64", "int32", "int32"), ""),
        "shmem_signal": Signature("nvshmemx_signal_op", (ADDRESS, "int64", "int32", "int32"), ""),
        "shmem_signal_wait": Signature("nvshmem_signal_wait_until", (ADDRESS, "int32", "int64"), "int64"),
        "shmem_p": Signature(f"nvshmem_uint{bits}_p", (ADDRESS, f"int{bits or 32}", "int32"), ""),
        "shmem_g": Signature(f"nvshmem_uint{bits}_g", (ADDRESS, "int32"), f"int{bits or 32}"),
        "shmem_barrier": Signature(f"{prefix}_{meeting}{suffix}", ("int32",), "int32"),
        "shmem_quiet": Signature("nvshmem_quiet", (), ""),
        "shmem_fence": Signature("nvshmem_fence", (), ""),
        "shmem_broadcast": Signature(f"{prefix}_broadcastmem{suffix}", ("int32", *copy, "int32"), "int32"),
        "shmem_fcollect": Signature(f"{prefix}_fcollectmem{suffix}", ("int32", *copy), "int32"),
    }
    return rows[primitive]


def _invoke(semantic: Any, function: Signature, operands: Sequence[tl.tensor]) -> tl.tensor:
    builder = semantic.builder
    path = dict(builder.options.extern_libs)[LIBRARY]
    bitcode.check_symbol(LIBRARY, function.symbol, path)
    bitcode.link(builder.options, LIBRARY, path, function)
    result = tl.int64 if function.result == ADDRESS else tl.dtype(function.result or "int32")
    handles = [operand.handle for operand in operands]
    marked = bitcode.marked(path)
    handle = builder.create_extern_elementwise(LIBRARY, marked, function.wrapper, handles, result.to_ir(builder), function.pure)
    return tl.tensor(handle, result)


# ---------------------------------------------------------------------- addresses


def _distance(semantic: Any) -> tl.tensor:
    """Bytes from an address of this rank's heap to where NVSHMEM knows it; it never changes."""
    address = context_layout.word_address(context_layout.NVSHMEM_DELTA)
    text = f"{{ .reg .b64 %address; mov.u64 %address, {address:#x}; ld.global.nc.b64 $0, [%address]; }}"
    return inline_asm(semantic, text, "=l", [], tl.int64, pure=True)


def _symmetric(semantic: Any, pointer: tl.tensor) -> tl.tensor:
    """A symmetric object's address as NVSHMEM knows it."""
    return semantic.add(semantic.cast(pointer, tl.int64), _distance(semantic), False)


def _local(semantic: Any, call: Call, pointer: tl.tensor) -> tl.tensor:
    """Memory of this GPU: as NVSHMEM knows it if it is symmetric, so that a network's adapter can reach it; else as it is."""
    address = semantic.cast(pointer, tl.int64)
    slot = semantic.ashr(address, constant(semantic, STRIDE_BITS, tl.int64))
    own = semantic.add(semantic.cast(cuda.rank(semantic, call), tl.int64), constant(semantic, FIRST_SLOT + 1, tl.int64), False)
    distance = semantic.where(semantic.equal(slot, own), _distance(semantic), constant(semantic, 0, tl.int64))
    return semantic.add(address, distance, False)


def _require_signal_word(call: Call) -> None:
    element = call["sig_addr"].dtype.element_ty
    if element.primitive_bitwidth != 64:
        raise PrimitiveArgumentError(
            f"NVSHMEM's signal words have 64 bits, but sig_addr points to {element.name}; use int64 words (utils.NVSHMEM_SIGNAL_DTYPE)"
        )


# ---------------------------------------------------------------------- the rows


def _in_group(semantic: Any, level: str, incoming: bool, act: Any) -> None:
    """What the group's threads did before is there for all of them, and its part is done when they go on."""
    shmem.enter_group(tl.constexpr(level), _semantic=semantic)
    act()
    shmem.leave_group(tl.constexpr(level), tl.constexpr(incoming), _semantic=semantic)


def put(semantic: Any, call: Call) -> None:
    """From memory of this GPU to a symmetric object."""
    function = signature("shmem_put", call.choice("level"), call.choice("nbi"))
    operands = [_symmetric(semantic, call["dest"]), _local(semantic, call, call["source"]), call["bytes"], call["pe"]]
    _in_group(semantic, call.choice("level"), False, lambda: _invoke(semantic, function, operands))


def get(semantic: Any, call: Call) -> None:
    """From a symmetric object to memory of this GPU."""
    function = signature("shmem_get", call.choice("level"), call.choice("nbi"))
    operands = [_local(semantic, call, call["dest"]), _symmetric(semantic, call["source"]), call["bytes"], call["pe"]]
    _in_group(semantic, call.choice("level"), True, lambda: _invoke(semantic, function, operands))


def put_signal(semantic: Any, call: Call) -> None:
    """A put and its signal, in one function."""
    _require_signal_word(call)
    function = signature("shmem_put_signal", call.choice("level"), call.choice("nbi"))
    operands = [
        _symmetric(semantic, call["dest"]),
        _local(semantic, call, call["source"]),
        call["bytes"],
        _symmetric(semantic, call["sig_addr"]),
        semantic.bitcast(call["signal"], tl.int64),
        constant(semantic, _SIGNAL_OPERATIONS[call.choice("sig_op")], tl.int32),
        call["pe"],
    ]
    _in_group(semantic, call.choice("level"), False, lambda: _invoke(semantic, function, operands))


def signal(semantic: Any, call: Call) -> None:
    """One thread's update of a signal word, behind its own loads and stores, TMA stores too."""
    _require_signal_word(call)
    shmem.enter_group(tl.constexpr("thread"), _semantic=semantic)
    inline_asm(semantic, "fence.acq_rel.sys; mov.u32 $0, 0;", "=r", [], tl.int32, pure=False)
    operation = constant(semantic, _SIGNAL_OPERATIONS[call.choice("sig_op")], tl.int32)
    value = semantic.bitcast(call["signal"], tl.int64)
    _invoke(semantic, signature("shmem_signal"), [_symmetric(semantic, call["sig_addr"]), value, operation, call["pe"]])


def signal_wait(semantic: Any, call: Call) -> tl.tensor:
    """NVSHMEM's wait for a word of 64 bits, which is not bounded; this package's own for one of 32."""
    if call.result.primitive_bitwidth != 64:
        return shmem.signal_wait(semantic, call)
    comparison = constant(semantic, _COMPARISONS[call.choice("cmp")], tl.int32)
    operands = [_symmetric(semantic, call["sig_addr"]), comparison, semantic.bitcast(call["cmp_val"], tl.int64)]
    seen = _invoke(semantic, signature("shmem_signal_wait"), operands)
    shmem.leave_group(tl.constexpr("thread"), tl.constexpr(True), _semantic=semantic)
    return semantic.bitcast(seen, call.result)


def store_scalar(semantic: Any, call: Call) -> None:
    """By its bits, whatever the type."""
    value = call["value"]
    bits = value.dtype.primitive_bitwidth
    word = semantic.bitcast(value, tl.core.get_int_dtype(bits, signed=True))
    _invoke(semantic, signature("shmem_p", bits=bits), [_symmetric(semantic, call["dest"]), word, call["pe"]])


def load_scalar(semantic: Any, call: Call) -> tl.tensor:
    """By its bits, whatever the type."""
    bits = call.result.primitive_bitwidth
    word = _invoke(semantic, signature("shmem_g", bits=bits), [_symmetric(semantic, call["source"]), call["pe"]])
    return from_carrier(semantic, word, call.result)


def remote_mc_ptr(semantic: Any, call: Call) -> tl.tensor:
    """NULL where NVSHMEM has no multicast for the team."""
    address = _invoke(semantic, signature("remote_mc_ptr"), [call["team"], _symmetric(semantic, call["ptr"])])
    return semantic.cast(address, call.result)


def barrier(semantic: Any, call: Call) -> None:
    """With or without completing what was put before."""
    function = signature("shmem_barrier", call.choice("level"), completes=call.choice("completes"))
    _in_group(semantic, call.choice("level"), True, lambda: _invoke(semantic, function, [call["team"]]))


def broadcast(semantic: Any, call: Call) -> None:
    """Source and destination are symmetric."""
    operands = [call["team"], _symmetric(semantic, call["dest"]), _symmetric(semantic, call["source"]), call["bytes"], call["pe_root"]]
    function = signature("shmem_broadcast", call.choice("level"))
    _in_group(semantic, call.choice("level"), True, lambda: _invoke(semantic, function, operands))


def fcollect(semantic: Any, call: Call) -> None:
    """Source and destination are symmetric."""
    operands = [call["team"], _symmetric(semantic, call["dest"]), _symmetric(semantic, call["source"]), call["bytes"]]
    function = signature("shmem_fcollect", call.choice("level"))
    _in_group(semantic, call.choice("level"), True, lambda: _invoke(semantic, function, operands))


def _order(primitive: str) -> Lowering:
    """The lowering of quiet or fence, which stand behind the thread's own bulk stores, too."""

    def lower(semantic: Any, call: Call) -> None:
        shmem.enter_group(tl.constexpr("thread"), _semantic=semantic)
        _invoke(semantic, signature(primitive), [])

    return lower


def _team(primitive: str, operands: Sequence[str]) -> Lowering:
    def lower(semantic: Any, call: Call) -> tl.tensor:
        return _invoke(semantic, signature(primitive), [call[name] for name in operands])

    return lower


LOWERINGS: dict[str, Lowering] = {
    "remote_mc_ptr": remote_mc_ptr,
    "team_my_pe": _team("team_my_pe", ["team"]),
    "team_n_pes": _team("team_n_pes", ["team"]),
    "team_translate_pe": _team("team_translate_pe", ["src_team", "pe_in_src_team", "dest_team"]),
    "shmem_put": put,
    "shmem_get": get,
    "shmem_put_signal": put_signal,
    "shmem_signal": signal,
    "shmem_signal_wait": signal_wait,
    "shmem_p": store_scalar,
    "shmem_g": load_scalar,
    "shmem_barrier": barrier,
    "shmem_quiet": _order("shmem_quiet"),
    "shmem_fence": _order("shmem_fence"),
    "shmem_broadcast": broadcast,
    "shmem_fcollect": fcollect,
}
"""The SHMEM rows of the table that are NVSHMEM's; ``remote_ptr`` gives a pointer of this package's own address map."""
