"""Lowering for NVIDIA GPUs: inline PTX, and plain Triton IR where that says the same.

Rules that the compile tests pin:
- assembly that waits or has an effect is impure, and a wait ends in a block barrier (which ``lowering.emit`` adds);
- every thread polls, since under warp specialisation the executing partition may not contain thread 0;
- from sm_90 on, TMA reads and writes memory through another proxy: a release first waits for the thread's own bulk stores,
  and an acquire is followed by a proxy fence.
"""

from __future__ import annotations

import re
from typing import Any

import triton.language as tl

from triton_dist.primitives import common, cuda_threads
from triton_dist.primitives.call import Call, Lowering, as_carrier, carrier_type, constant, from_carrier, inline_asm
from triton_dist.primitives.cuda_wait import wait_assembly
from triton_dist.primitives.kernel_hash import kernel_hash
from triton_dist.runtime import context_layout

_FIRST_WITH_TMA = 90
_FIRST_WITH_PARTITIONS = 100
_ACQUIRES = ("acquire", "acq_rel")
_RELEASES = ("release", "acq_rel")


def capability(semantic: Any) -> int:
    """Compute capability of the target as Triton writes it: 80, 90, 100."""
    return int(re.sub(r"\D", "", semantic.builder.options.arch))


def wait(semantic: Any, call: Call) -> tl.tensor:
    """Every thread of the block polls; with several words each warp shares them out over its lanes, in strides of 32.

    The proxy fence stands after the words of the whole warp were seen, so that whichever thread issues a TMA load has it.
    What a thread does that polls in vain is in ``cuda_wait.py``.
    """
    value = call["waitValue"]
    bits = value.dtype.primitive_bitwidth
    single = call.constants.get("numBarriers") == 1
    operands = [call["barrierPtrs"], as_carrier(semantic, value)]
    if not single:
        operands.insert(1, call["numBarriers"])
    text = wait_assembly(
        bits=bits,
        single=single,
        semantic=call.choice("semantic"),
        scope=call.choice("scope"),
        cmp=call.choice("cmp"),
        kernel=kernel_hash(call.generator, semantic.builder.options),
        after=_after_acquire(semantic, call.choice("semantic")),
    )
    constraints = ",".join(["=r", "l", *([] if single else ["r"]), _register(bits)])
    return inline_asm(semantic, text, constraints, operands, tl.int32, pure=False)


def poll(semantic: Any, generator: Any, ptr: tl.tensor, value: tl.tensor, cmp: str) -> tl.tensor:
    """One thread's wait for one word, acquire at system scope, with no barrier after it; gives the word that it saw."""
    bits = value.dtype.primitive_bitwidth
    text = wait_assembly(
        bits=bits,
        single=True,
        semantic="acquire",
        scope="sys",
        cmp=cmp,
        kernel=kernel_hash(generator, semantic.builder.options),
        after=_after_acquire(semantic, "acquire"),
        gives_word=True,
    )
    register = _register(bits)
    seen = inline_asm(semantic, text, f"={register},l,{register}", [ptr, as_carrier(semantic, value)], carrier_type(bits), pure=False)
    return from_carrier(semantic, seen, value.dtype)


def rank(semantic: Any, call: Call) -> tl.tensor:
    """The context page's word; it never changes, so the load may be merged and moved."""
    return _context_word(semantic, context_layout.RANK)


def num_ranks(semantic: Any, call: Call) -> tl.tensor:
    """The context page's word; it never changes, so the load may be merged and moved."""
    return _context_word(semantic, context_layout.NUM_RANKS)


def symm_at(semantic: Any, call: Call) -> tl.tensor:
    """Address arithmetic in plain IR."""
    return common.symm_at(semantic, call, rank)


def notify(semantic: Any, call: Call) -> None:
    """Every thread waits for the bulk stores it issued, since a barrier does not; then the common notify.

    In a warp-specialised loop (from sm_100 on) only the default partition signals, whose warps come first: Triton (3.7,
    3.9) copies an atomic whose operands are the same in every iteration to every partition, and the word would be
    signalled by each, before the tile is stored.
    """
    mask = None
    if capability(semantic) >= _FIRST_WITH_TMA:
        inline_asm(semantic, f"{_before_release(semantic, 'release')} mov.u32 $0, 0;", "=r", [], tl.int32, pure=False)
    if capability(semantic) >= _FIRST_WITH_PARTITIONS:
        threads = constant(semantic, 32 * semantic.builder.options.num_warps, tl.int32)
        # Impure, so that it is read where the signal is and not once before the partitions part.
        mask = semantic.less_than(_thread_index(semantic, "x", pure=False), threads)
    common.notify(semantic, call, rank, mask)


def ld(semantic: Any, call: Call) -> tl.tensor:
    """``ld.relaxed`` or ``ld.acquire`` of 8 to 64 bits."""
    bits = call.result.primitive_bitwidth
    order = call.choice("semantic")
    text = f"ld.{order}.{call.choice('scope')}.global.b{bits} $0, [$1]; {_after_acquire(semantic, order)}"
    loaded = inline_asm(semantic, text, f"={_register(bits)},l", [call["ptr"]], carrier_type(bits), pure=False)
    return from_carrier(semantic, loaded, call.result)


def st(semantic: Any, call: Call) -> None:
    """``st.relaxed`` or ``st.release`` of 8 to 64 bits."""
    value = call["val"]
    bits = value.dtype.primitive_bitwidth
    order = call.choice("semantic")
    text = f"{_before_release(semantic, order)} st.{order}.{call.choice('scope')}.global.b{bits} [$1], $2; mov.u32 $0, 0;"
    inline_asm(semantic, text, f"=r,l,{_register(bits)}", [call["ptr"], as_carrier(semantic, value)], tl.int32, pure=False)


def atomic_add(semantic: Any, call: Call) -> tl.tensor:
    """``atom.add``, which is the same for signed and unsigned words."""
    return _atomic(semantic, call, "add.u", ["val"])


def atomic_update(operation: str) -> Lowering:
    """The lowering of ``atom`` with an operation that takes one value."""
    signed = operation in ("min", "max")

    def update(semantic: Any, call: Call) -> tl.tensor:
        kind = "s" if signed and call.result.is_int_signed() else "u" if signed else "b"
        return _atomic(semantic, call, f"{operation}.{kind}", ["val"])

    return update


def ld_vector(semantic: Any, call: Call) -> Any:
    """Vector loads, each followed by what an acquire needs."""
    return cuda_threads.ld_vector(semantic, call, _after_acquire(semantic, call.choice("semantic")))


def st_vector(semantic: Any, call: Call) -> None:
    """Vector stores, each after what a release needs."""
    cuda_threads.st_vector(semantic, call, _before_release(semantic, call.choice("semantic")))


def atomic_cas(semantic: Any, call: Call) -> tl.tensor:
    """``atom.cas``."""
    return _atomic(semantic, call, "cas.b", ["cmp_val", "target_val"])


def tid(semantic: Any, call: Call) -> tl.tensor:
    """The special register of the axis."""
    return _thread_index(semantic, "xyz"[call.choice("axis")], pure=True)


def fence(semantic: Any, call: Call) -> None:
    """``fence.acq_rel`` or ``fence.sc``, after the thread's own bulk stores where other blocks are to see them."""
    scope = call.choice("scope")
    before = "" if scope == "cta" else _before_release(semantic, "release")
    inline_asm(semantic, f"{before} fence.{call.choice('order')}.{scope}; mov.u32 $0, 0;", "=r", [], tl.int32, pure=False)


def _thread_index(semantic: Any, axis: str, *, pure: bool) -> tl.tensor:
    return inline_asm(semantic, f"mov.u32 $0, %tid.{axis};", "=r", [], tl.int32, pure=pure)


def _context_word(semantic: Any, offset: int) -> tl.tensor:
    address = context_layout.word_address(offset)
    text = f"{{ .reg .b64 %address; mov.u64 %address, {address:#x}; ld.global.nc.b32 $0, [%address]; }}"
    return inline_asm(semantic, text, "=r", [], tl.int32, pure=True)


def _atomic(semantic: Any, call: Call, operation: str, names: list[str]) -> tl.tensor:
    bits = call.result.primitive_bitwidth
    order = call.choice("semantic")
    values = [as_carrier(semantic, call[name]) for name in names]
    arguments = ", ".join(f"${number}" for number in range(2, 2 + len(values)))
    instruction = f"atom.{order}.{call.choice('scope')}.global.{operation}{bits} $0, [$1], {arguments};"
    text = f"{_before_release(semantic, order)} {instruction} {_after_acquire(semantic, order)}"
    register = _register(bits)
    constraints = ",".join([f"={register}", "l", *[register] * len(values)])
    old = inline_asm(semantic, text, constraints, [call["ptr"], *values], carrier_type(bits), pure=False)
    return from_carrier(semantic, old, call.result)


def _before_release(semantic: Any, order: str) -> str:
    """What a release by one thread needs first: a bulk store is not ordered by it before it has completed."""
    needed = order in _RELEASES and capability(semantic) >= _FIRST_WITH_TMA
    return "cp.async.bulk.wait_group 0;" if needed else ""


def _after_acquire(semantic: Any, order: str) -> str:
    """What must follow an acquire so that TMA loads, which go through the async proxy, come after it too."""
    needed = order in _ACQUIRES and capability(semantic) >= _FIRST_WITH_TMA
    return "fence.proxy.async;" if needed else ""


def _register(bits: int) -> str:
    return "l" if bits == 64 else "r"


LOWERINGS: dict[str, Lowering] = {
    **common.LOWERINGS,
    **cuda_threads.LOWERINGS,
    **{f"atomic_{operation}": atomic_update(operation) for operation in ("exch", "min", "max", "and", "or", "xor")},
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
