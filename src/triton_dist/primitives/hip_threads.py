"""Lowering for AMD GPUs of what single threads do: vectors element by element, and named refusals of what has no lowering yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives.call import Call, Lowering, constant
from triton_dist.primitives.vector import vector

ATOMICS = {"exch": "swap", "min": "{sign}min", "max": "{sign}max", "and": "and", "or": "or", "xor": "xor"}
"""The instruction of each atomic update; ``sign`` is s or u by the word's type."""

_REFUSED = {
    "shfl": "exchanges between the threads of a warp",
    "ballot": "votes of a warp",
    "syncwarp": "barriers of a warp",
    "multimem_st": "stores through a multicast address (NVLink only)",
    "multimem_ld_reduce": "sums through a multicast address (NVLink only)",
    "shared_memory": "elements of tiles in a simt region (they need shared memory of their own)",
    "shared_load": "elements of tiles in a simt region (they need shared memory of their own)",
    "shared_store": "elements of tiles in a simt region (they need shared memory of their own)",
}


def ld_vector(semantic: Any, call: Call, load: Lowering) -> vector:
    """One load an element."""
    scalar = _scalar_call(call)
    places = [_place(semantic, call, number) for number in range(call.choice("vec_size"))]
    return vector([load(semantic, replace(scalar, operands={"ptr": place})) for place in places])


def st_vector(semantic: Any, call: Call, store: Lowering) -> None:
    """One store an element."""
    scalar = _scalar_call(call)
    for number, value in enumerate(call["vec"]):
        store(semantic, replace(scalar, operands={"ptr": _place(semantic, call, number), "val": value}))


def _place(semantic: Any, call: Call, number: int) -> tl.tensor:
    return semantic.add(call["ptr"], constant(semantic, number, tl.int32), False)


def _scalar_call(call: Call) -> Call:
    """A weak access is a relaxed one of the block's scope, the narrowest."""
    weak = call.choice("semantic") == "weak"
    choices = {"scope": call.choice("scope") or ("cta" if weak else "gpu"), "semantic": "relaxed" if weak else call.choice("semantic")}
    return replace(call, choices=choices)


def refused(what: str) -> Lowering:
    """A lowering that raises PrimitiveArgumentError."""

    def refuse(semantic: Any, call: Call) -> None:
        raise PrimitiveArgumentError(f"{what} are not implemented for AMD GPUs; use ld, st and atomics, or Triton's own tile operations")

    return refuse


LOWERINGS: dict[str, Lowering] = {name: refused(what) for name, what in _REFUSED.items()}
