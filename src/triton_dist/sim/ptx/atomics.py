"""Read-modify-writes: atom, which gives what was there, and red, which does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..check.actors import BLOCK, ELEMENT
from ..check.checker import SILENT
from ..memory import element_index, scalar_view
from ..ops import arith
from ..ops.memory import check_scalar, put_word, see_word
from .form import Form, Step, contents, opcode, writer
from .memory import address, is_shared, note_poll, rows, vector
from .order import order_of
from .places import Access
from .shared import changed, checked_places, memory_of, shared_address
from .syntax import Discard, Instruction, Register
from .types import PtxType

if TYPE_CHECKING:
    from .frame import Frame

Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""New numbers of a word, from what it has and what the lane brings. Arrays of one number (of two, for a packed type)."""


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # The memory's adder flushes subnormal fp32, and no other type.
    return arith.flush(arith.flush(a) + arith.flush(b)) if a.dtype == np.float32 else a + b


def _increase(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a >= b, a.dtype.type(0), a + a.dtype.type(1))


def _decrease(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((a == 0) | (a > b), b, a - a.dtype.type(1))


def _largest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return arith.maximum_number(a, b) if a.dtype.kind not in "iu" else np.maximum(a, b)


def _smallest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return arith.minimum_number(a, b) if a.dtype.kind not in "iu" else np.minimum(a, b)


OPERATIONS: dict[str, tuple[Combine, tuple[str, ...]]] = {
    "add": (_add, ("u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2")),
    "min": (_smallest, ("u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2", "f32")),
    "max": (_largest, ("u32", "s32", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2", "f32")),
    "inc": (_increase, ("u32",)),
    "dec": (_decrease, ("u32",)),
    "and": (np.bitwise_and, ("b32", "b64")),
    "or": (np.bitwise_or, ("b32", "b64")),
    "xor": (np.bitwise_xor, ("b32", "b64")),
    "exch": (lambda a, b: b, ("b32", "b64", "u32", "s32", "u64", "s64", "f32")),
    "cas": (lambda a, b: b, ("b16", "b32", "b64", "u32", "s32", "u64", "s64")),
}
"""What each operation does, and the types that it takes."""

_COUNTS = {"v2": 2, "v4": 4, "v8": 8}
_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")


@opcode("atom", "red")
def _update(instruction: Instruction) -> Step:
    form = Form(instruction)
    is_atom = instruction.opcode == "atom"
    if form.left[:1] == ["async"]:
        raise instruction.unsupported("asynchronous reductions in the shared memory of a cluster are not simulated")
    order = order_of(form, _SEMANTICS if is_atom else ("relaxed", "release"), ("relaxed", "gpu"))
    assert order is not None, "an atomic is never weak"
    shared = is_shared(form)
    name = form.one_of(OPERATIONS)
    form.flag("noftz")
    hinted = form.flag("L2::cache_hint")
    count = _COUNTS[form.one_of(_COUNTS)] if any(word in form.left for word in _COUNTS) else 1
    combine, types = OPERATIONS[name]
    kind = form.type(types)
    swaps = name == "cas"
    if not is_atom and name in ("exch", "cas"):
        raise instruction.wrong(f"red has no .{name}; use atom")
    form.done(2 + is_atom + swaps + hinted)
    operands = list(instruction.operands)
    target = operands.pop(0) if is_atom else Discard()
    place = (shared_address if shared else address)(instruction, operands[0])
    sources = vector(instruction, operands[1], count)
    brought = [contents(instruction, source, kind.bits, kind.constants) for source in sources]
    expected = brought
    if swaps:
        brought = [contents(instruction, operands[2], kind.bits)]
    targets = vector(instruction, target, count) if is_atom and not isinstance(target, Discard) else ()
    writes = [writer(instruction, one, kind) for one in targets]

    def run(frame, mask) -> None:
        lanes = frame.chosen(mask)
        values, wanted = rows(frame, brought, lanes), rows(frame, expected, lanes) if swaps else None
        if shared:
            places = checked_places(frame, place(frame), lanes, kind.bits // 8, count, "atomic")
            old = _update_shared(frame, places, combine, kind, values, wanted)
        else:
            access = Access(frame, place(frame), lanes, kind.bits // 8, count, order, "atomic")
            note_poll(frame, instruction, access)
            old = update_lanes(frame, access, combine, kind, values, wanted)
        found = np.zeros((frame.lanes, count), old.dtype)
        found[lanes] = old
        for number, write in enumerate(writes):
            write(frame, found[:, number], mask)

    gives = any(isinstance(one, Register) for one in targets)
    return Step(run, per_thread=gives, touches=True, yields_before=True, yields_after=order.release and not gives, orders=True)


def update_lanes(
    frame: Frame, access: Access, combine: Combine, kind: PtxType, values: np.ndarray, expected: np.ndarray | None
) -> np.ndarray:
    """Lane after lane; gives what each has seen, a row for each."""
    context, size, order = frame.context, access.size, access.order
    assert order is not None, "an atomic is never weak"
    number = len(access.lanes)
    places = np.broadcast_to(access.places, (number, access.count))
    values = np.broadcast_to(values, (number, access.count))
    wanted = None if expected is None else np.broadcast_to(expected, (number, access.count))
    view, signed = scalar_view(kind.raw), np.dtype(f"i{size}")
    seen = np.zeros((number, access.count), kind.raw)
    context.at, context.order = frame.location, order
    together = expected is None and access.uniform and frame.covers_block and number == frame.lanes and number > 1
    if context.race is not None and together:
        for place in access.places.ravel().tolist():
            _check(context, place, size)
            context.race.checker.updates_of_block(context, place, size)
    for row, lane in enumerate(access.lanes.tolist()):
        for column, place in enumerate(places[row].tolist()):
            _check(context, place, size)
            see_word(context, place)
            index = element_index(place, size)
            old = view[index]
            seen[row, column] = old
            swaps = wanted is None or old == wanted[row, column]
            if context.race is not None and not together:
                checker = context.race.checker
                thread = int(frame.threads[lane]) if frame.known else ELEMENT
                learner = thread if frame.known else BLOCK
                checker.word(
                    context.race, place, size, order, context.at, reads=True, writes=bool(swaps), thread=thread, learner=learner
                )  # fmt: skip
            if swaps:
                new = kind.contents(combine(kind.numbers(seen[row, column : column + 1]), kind.numbers(values[row, column : column + 1])))
                put_word(context, place, new.view(signed)[0], signed, frame.location)
    context.order = None
    return seen


def _update_shared(
    frame: Frame, places: np.ndarray, combine: Combine, kind: PtxType, values: np.ndarray, expected: np.ndarray | None
) -> np.ndarray:
    """As ``update_lanes``. places: a row for each lane."""
    view = memory_of(frame.context).data.view(kind.raw)
    seen = np.zeros(places.shape, kind.raw)
    values = np.broadcast_to(values, places.shape)
    wanted = None if expected is None else np.broadcast_to(expected, places.shape)
    for row, column in np.ndindex(places.shape):
        index = places[row, column] // kind.raw.itemsize
        seen[row, column] = view[index]
        if wanted is None or view[index] == wanted[row, column]:
            new = combine(kind.numbers(seen[row, column : column + 1]), kind.numbers(values[row, column : column + 1]))
            view[index] = kind.contents(new)[0]
    changed(frame.context)
    return seen


def _check(context, place: int, size: int) -> None:
    context.lane = SILENT
    check_scalar(context, place, size, "atomic", None)
    context.lane = -1
