"""Lowering for AMD GPUs: portable Triton atomics where the block acts together, CDNA3 assembly where each thread does.

Triton's own scalar atomics run in one thread of the block, so the per-thread primitives (ld, st, atomic_add, atomic_cas,
fence) are assembly, for gfx942 and gfx950, whose instructions name the scope by the sc0 and sc1 bits. On other AMD GPUs
those five are a compile-time error.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import common, hip_functions, hip_threads
from triton_dist.primitives.call import (
    Call,
    Lowering,
    as_carrier,
    call_function,
    carrier_type,
    constant,
    from_carrier,
    inline_asm,
    with_type,
)
from triton_dist.runtime import context_layout

ASSEMBLY_TARGETS = ("gfx942", "gfx950")
"""GPUs that take the assembly of the per-thread primitives."""

_SCOPE_BITS = {"cta": "sc0", "gpu": "sc1", "sys": "sc0 sc1"}
_WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
_LOAD_SUFFIX = {8: "ubyte", 16: "ushort", 32: "dword", 64: "dwordx2"}
_STORE_SUFFIX = {8: "byte", 16: "short", 32: "dword", 64: "dwordx2"}


def rank(semantic: Any, call: Call) -> tl.tensor:
    """The context page's word."""
    return _context_word(call, context_layout.RANK)


def num_ranks(semantic: Any, call: Call) -> tl.tensor:
    """The context page's word."""
    return _context_word(call, context_layout.NUM_RANKS)


def symm_at(semantic: Any, call: Call) -> tl.tensor:
    """Address arithmetic in plain IR."""
    return common.symm_at(semantic, call, rank)


def wait(semantic: Any, call: Call) -> tl.tensor:
    """Polls with atomics; the token is a plain 0, since atomics and the block barrier keep the order by themselves."""
    value = call["waitValue"]
    word = tl.core.get_int_dtype(value.dtype.primitive_bitwidth, signed=True)
    ptr, value = with_type(semantic, call["barrierPtrs"], word), semantic.cast(value, word)
    choices = [call.choice("cmp"), call.choice("semantic"), call.choice("scope")]
    call_function(call, hip_functions.poll_words, [ptr, call["numBarriers"], value, *map(tl.constexpr, choices)])
    return constant(semantic, 0, tl.int32)


def notify(semantic: Any, call: Call) -> None:
    """The common notify."""
    common.notify(semantic, call, rank)


def ld(semantic: Any, call: Call) -> tl.tensor:
    """A load that bypasses the caches inside its scope; an acquire then invalidates them."""
    bits = call.result.primitive_bitwidth
    scope = _SCOPE_BITS[call.choice("scope")]
    lines = [f"global_load_{_LOAD_SUFFIX[bits]} $0, $1, off {scope}", _WAIT, *_after_acquire(call)]
    loaded = _assembly(semantic, call, lines, "=&v,v", [call["ptr"]], carrier_type(bits))
    return from_carrier(semantic, loaded, call.result)


def st(semantic: Any, call: Call) -> None:
    """A store that writes through to its scope; a release first writes back what the thread stored."""
    bits = call["val"].dtype.primitive_bitwidth
    scope = _SCOPE_BITS[call.choice("scope")]
    lines = [*_before_release(call), f"global_store_{_STORE_SUFFIX[bits]} $1, $2, off {scope}", "v_mov_b32 $0, 0"]
    _assembly(semantic, call, lines, "=&v,v,v", [call["ptr"], as_carrier(semantic, call["val"])], tl.int32)


def atomic_add(semantic: Any, call: Call) -> tl.tensor:
    """An atomic that returns the old value (sc0)."""
    suffix = "_x2" if call.result.primitive_bitwidth == 64 else ""
    instruction = f"global_atomic_add{suffix} $0, $1, $2, off {_atomic_bits(call)}"
    return _atomic(semantic, call, [instruction], [as_carrier(semantic, call["val"])])


def atomic_cas(semantic: Any, call: Call) -> tl.tensor:
    """An atomic that returns the old value (sc0).

    The instruction takes the new value and the compare value in adjacent registers. Assembly operands have at most 64
    bits, so two 64-bit values are moved to four fixed registers first.
    """
    compare, target = as_carrier(semantic, call["cmp_val"]), as_carrier(semantic, call["target_val"])
    if call.result.primitive_bitwidth == 64:
        before = ["v_mov_b64 v[4:5], $2", "v_mov_b64 v[6:7], $3"]
        instruction = f"global_atomic_cmpswap_x2 $0, $1, v[4:7], off {_atomic_bits(call)}"
        return _atomic(semantic, call, [*before, instruction], [target, compare], ",~{v4},~{v5},~{v6},~{v7}")
    upper = semantic.shl(_zero_extended(semantic, compare), constant(semantic, 32, tl.int64))
    both = semantic.or_(upper, _zero_extended(semantic, target))
    return _atomic(semantic, call, [f"global_atomic_cmpswap $0, $1, $2, off {_atomic_bits(call)}"], [both])


def atomic_update(name: str) -> Lowering:
    """The lowering of an atomic that takes one value and returns the old one."""

    def update(semantic: Any, call: Call) -> tl.tensor:
        suffix = "_x2" if call.result.primitive_bitwidth == 64 else ""
        operation = name.format(sign="s" if call.result.is_int_signed() else "u")
        instruction = f"global_atomic_{operation}{suffix} $0, $1, $2, off {_atomic_bits(call)}"
        return _atomic(semantic, call, [instruction], [as_carrier(semantic, call["val"])])

    return update


def ld_vector(semantic: Any, call: Call) -> Any:
    """One load an element."""
    return hip_threads.ld_vector(semantic, call, ld)


def st_vector(semantic: Any, call: Call) -> None:
    """One store an element."""
    hip_threads.st_vector(semantic, call, st)


def tid(semantic: Any, call: Call) -> tl.tensor:
    """The compiler's own read of the work-item index; LLVM knows the function by its name."""
    builder = semantic.builder
    name = f"llvm.amdgcn.workitem.id.{'xyz'[call.choice('axis')]}"
    return tl.tensor(builder.create_extern_elementwise("", "", name, [], tl.int32.to_ir(builder), True), tl.int32)


def fence(semantic: Any, call: Call) -> None:
    """Writes back and invalidates the caches inside the scope."""
    lines = [*_write_back(call.choice("scope")), _invalidate(call.choice("scope")), "v_mov_b32 $0, 0"]
    _assembly(semantic, call, lines, "=&v", [], tl.int32)


def _context_word(call: Call, offset: int) -> tl.tensor:
    return call_function(call, hip_functions.load_word, [tl.constexpr(context_layout.word_address(offset))])


def _assembly(semantic: Any, call: Call, lines: list[str], constraints: str, operands: list[tl.tensor], result: tl.dtype) -> tl.tensor:
    """Emits the lines; raises PrimitiveArgumentError on a GPU whose instructions differ."""
    arch = semantic.builder.options.arch
    if arch.split(":")[0] not in ASSEMBLY_TARGETS:
        message = f"{call.primitive.name} is not implemented for {arch}; implemented for: {', '.join(ASSEMBLY_TARGETS)}"
        raise PrimitiveArgumentError(f"{message}. wait, notify and Triton's own atomics work on every AMD GPU")
    return inline_asm(semantic, "\n".join(line for line in lines if line), constraints, operands, result, pure=False)


def _atomic(semantic: Any, call: Call, instructions: list[str], values: list[tl.tensor], clobbers: str = "") -> tl.tensor:
    bits = call.result.primitive_bitwidth
    lines = [*_before_release(call), *instructions, _WAIT, *_after_acquire(call)]
    constraints = ",".join(["=&v", "v", *["v"] * len(values)]) + clobbers
    return from_carrier(semantic, _assembly(semantic, call, lines, constraints, [call["ptr"], *values], carrier_type(bits)), call.result)


def _atomic_bits(call: Call) -> str:
    return "sc0 sc1" if call.choice("scope") == "sys" else "sc0"


def _before_release(call: Call) -> list[str]:
    return _write_back(call.choice("scope")) if call.choice("semantic") in ("release", "acq_rel") else []


def _after_acquire(call: Call) -> list[str]:
    return [_invalidate(call.choice("scope"))] if call.choice("semantic") in ("acquire", "acq_rel") else []


def _write_back(scope: str) -> list[str]:
    return ["" if scope == "cta" else f"buffer_wbl2 {_SCOPE_BITS[scope]}", _WAIT]


def _invalidate(scope: str) -> str:
    return f"buffer_inv {_SCOPE_BITS[scope]}"


def _zero_extended(semantic: Any, value: tl.tensor) -> tl.tensor:
    return semantic.cast(semantic.bitcast(value, tl.uint32), tl.int64)


LOWERINGS: dict[str, Lowering] = {
    **common.LOWERINGS,
    **hip_threads.LOWERINGS,
    **{f"atomic_{operation}": atomic_update(name) for operation, name in hip_threads.ATOMICS.items()},
    "ld_vector": ld_vector,
    "st_vector": st_vector,
    "rank": rank,
    "num_ranks": num_ranks,
    "symm_at": symm_at,
    "wait": wait,
    "notify": notify,
    "ld": ld,
    "st": st,
    "atomic_add": atomic_add,
    "atomic_cas": atomic_cas,
    "tid": tid,
    "fence": fence,
}
