"""Runs blocks of inline PTX: those that only compute on whole tiles at once, the others thread by thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..asm_layouts import Layout, elements_by_layout
from ..ptx.binding import Binding, elements_of_threads
from ..ptx.control import Runner
from ..ptx.frame import Frame
from ..ptx.twins import Call
from ..requests import Steps

if TYPE_CHECKING:
    from ..program import Program

_POISON = 0xFF


def compute(context: Program, binding: Binding, operands: Sequence[Any], scalars: tuple[str, ...], location: int):
    """A block that neither touches memory nor knows its thread: once for each ``pack`` elements.

    scalars: for each result "" for a tile, else what to make of a scalar, see ``_scalar``. Gives one value for each result.
    """
    arrays = [np.asarray(operand) for operand in operands]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    count = int(np.prod(shape))
    groups = -(-count // binding.pack)
    frame = Frame(context, np.zeros(groups, np.int64), binding.block.registers, location, site=id(binding))
    binding.load(frame, [_grouped(array, shape, groups, binding.pack) for array in arrays])
    for _ in Runner(binding.block.lines, frame, shares=False).steps():
        pass
    found = binding.unload(frame)
    return tuple(
        _as_tile(one, shape, groups, count) if not kind else _scalar(one[0, 0], kind) for one, kind in zip(found, scalars, strict=True)
    )


def _grouped(array: np.ndarray, shape: tuple[int, ...], groups: int, pack: int) -> np.ndarray:
    if array.size == 1:
        return np.broadcast_to(array.reshape(1, 1), (1, pack))
    flat = np.broadcast_to(array, shape).reshape(-1)
    if flat.size < groups * pack:
        flat = np.concatenate([flat, np.zeros(groups * pack - flat.size, flat.dtype)])
    return flat.reshape(groups, pack)


def _as_tile(found: np.ndarray, shape: tuple[int, ...], groups: int, count: int):
    if len(found) < groups:
        found = np.broadcast_to(found, (groups, found.shape[1]))
    return found.reshape(-1)[:count].reshape(shape)[()]


def _scalar(value: np.generic, kind: str) -> Any:
    """What generated code takes a scalar for: "float" is numpy's, "bool" and "int" are Python's."""
    return value if kind == "float" else bool(value) if kind == "bool" else value.item()


def run_scalar(context: Program, binding: Binding, operands: Sequence[Any], kinds: tuple[str, ...], mask, location: int) -> Steps:
    """A block with scalars, which every active thread runs.

    kinds: for each result "varying" for one value for each thread, else as ``_scalar`` has them.
    """
    threads = np.arange(context.threads) if mask is None else np.flatnonzero(np.broadcast_to(mask, (context.threads,)))
    frame = Frame(context, threads, binding.block.registers, location, waits=binding.block.waits, site=id(binding))
    loaded = []
    for operand in operands:
        array = np.asarray(operand)
        chosen = array.reshape(1, 1) if array.size == 1 else np.broadcast_to(array, (context.threads,))[threads][:, None]
        loaded.append(np.broadcast_to(chosen, (len(chosen), binding.pack)))
    binding.load(frame, loaded)
    yield from _run(frame, binding)
    results: list[Any] = []
    for found, kind in zip(binding.unload(frame), kinds, strict=True):
        if kind != "varying":
            results.append(_scalar(found[0, 0], kind))
            continue
        spread = _poisoned((context.threads,), found.dtype)
        spread[threads] = found[:, 0]
        results.append(spread)
    return tuple(results)


def run_tile(
    context: Program, binding: Binding, operands: Sequence[Any], shape: tuple[int, ...], layout: Layout | None, mask, location: int
) -> Steps:
    """A block with tiles where threads matter: each thread runs it for the elements that it has, one group after the other.

    layout: the compiler's, if it is known.
    """
    count, block = int(np.prod(shape)), binding.block
    laid_out = None if layout is None else elements_by_layout(layout, shape, context.threads, binding.pack)
    known = laid_out is not None or count <= context.threads
    places = elements_of_threads(count, context.threads, binding.pack) if laid_out is None else laid_out
    active = np.arange(context.threads) if mask is None else np.flatnonzero(np.broadcast_to(mask, (context.threads,)))
    flat = [np.broadcast_to(np.asarray(operand), shape).reshape(-1) for operand in operands]
    results = [_poisoned((count,), result.dtype) for result in binding.results]
    together = block.accesses <= 1 and not block.loops and not block.meets
    rows = places[:, active]
    for number, groups in enumerate([rows.reshape(-1, binding.pack)] if together else list(rows)):
        threads = np.tile(active, len(groups) // max(len(active), 1))
        frame = Frame(context, threads, block.registers, location, known, block.waits, id(binding), number)
        binding.load(frame, [array[groups] for array in flat])
        yield from _run(frame, binding)
        for result, found in zip(results, binding.unload(frame), strict=True):
            found = np.broadcast_to(found, groups.shape)
            # Where several threads have an element, the first one's value is what a store of the tile would take.
            there = groups[::-1] >= 0
            result[groups[::-1][there]] = found[::-1][there]
    return tuple(result.reshape(shape) for result in results)


def call_once(context: Program, call: Call, operands: Sequence[Any], scalars: tuple[str, ...], location: int):
    """A twin of a block that is pure: once for each element, or once where all is the same. scalars: as of ``compute``."""
    arrays = [np.asarray(operand) for operand in operands]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    flat = [np.broadcast_to(array, shape).reshape(-1) for array in arrays]
    rows = [call.run(context, [array[place] for array in flat], location) for place in range(int(np.prod(shape)))]
    found = [np.array([row[number] for row in rows], kind.dtype) for number, kind in enumerate(call.results)]
    return tuple(_scalar(one[0], kind) if kind else one.reshape(shape)[()] for one, kind in zip(found, scalars, strict=True))


def call_each(context: Program, call: Call, operands: Sequence[Any], shape: tuple[int, ...] | None, mask, location: int):
    """A twin, by each active thread for each element that it has. shape: of tiles; None for scalars, which give a value for each thread."""
    threads = context.threads
    count = threads if shape is None else int(np.prod(shape))
    flat = [np.broadcast_to(np.asarray(operand), (threads,) if shape is None else shape).reshape(-1) for operand in operands]
    results = [_poisoned((count,), kind.dtype) for kind in call.results]
    active = np.arange(threads) if mask is None else np.flatnonzero(np.broadcast_to(mask, (threads,)))
    known = count <= threads
    done: set[int] = set()
    for places in elements_of_threads(count, threads, 1)[:, active, 0].tolist():
        for thread, place in zip(active.tolist(), places, strict=True):
            if place < 0:
                continue
            context.lane = thread if known else -1
            found = call.run(context, [array[place] for array in flat], location)
            if place not in done:
                for result, value in zip(results, found, strict=True):
                    result[place] = value
            done.add(place)
    context.lane = -1
    return tuple(result if shape is None else result.reshape(shape) for result in results)


def _run(frame: Frame, binding: Binding) -> Steps:
    context = frame.context
    if not frame.lanes:
        return
    yield from Runner(binding.block.lines, frame, shares=binding.block.touches).steps()
    if binding.block.orders and context.block_memory is not None:
        # It may order some threads' accesses to a tile; which ones is not followed, so that no right program is blamed.
        context.block_memory.order()


def _poisoned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """What no thread has computed: a NaN, or -1."""
    if dtype == np.bool_:
        return np.ones(shape, np.bool_)
    return np.full(shape, _POISON, np.uint8).repeat(dtype.itemsize).view(dtype).reshape(shape)
