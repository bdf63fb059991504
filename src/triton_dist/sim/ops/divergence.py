"""Control flow that differs from thread to thread: in lock step, and apart where lock step finds no way on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DeviceAssertionError
from ..requests import SPIN, Steps
from .primitives import active_threads, spread

if TYPE_CHECKING:
    from ..program import Program


def _merge(mask: np.ndarray, new: tuple, old: tuple) -> tuple:
    return tuple(np.where(mask, x, y) for x, y in zip(new, old, strict=True))


def divergent_if(context: Program, mask, condition, then_side: Callable, else_side: Callable) -> Steps:
    """Both sides run as coroutines, each under its own mask, and join; so one side may wait for what the other does."""
    active = active_threads(context, mask)
    taken = active & spread(context, condition, np.dtype(np.bool_))
    skipped = active & ~taken
    if not skipped.any():
        return (yield from then_side(taken))
    if not taken.any():
        return (yield from else_side(skipped))
    running = {True: then_side(taken), False: else_side(skipped)}
    results: dict[bool, tuple] = {}
    while running:
        requests: list = []
        version = context.memory.version
        for side in list(running):
            try:
                requests.append(next(running[side]))
            except StopIteration as end:
                results[side] = end.value
                del running[side]
        if running:
            yield _join(requests, context.memory.version != version)
    return _merge(taken, results[True], results[False])


def _join(requests: list, changed: bool):
    """What both sides together yield: they park or spin only if neither can go on and neither has just written what the other waits for."""
    if changed or any(request is None for request in requests):
        return None
    return requests[0] if len(requests) == 1 else SPIN


def divergent_while(context: Program, mask, values: tuple, test: Callable, body: Callable, behind: Callable | None = None) -> Steps:
    """Threads that are done wait for those that are not: masked lock step.

    behind: what each thread does for itself after the loop, ``(mask, *results)``; its values are given after the loop's. Where the block
    spins and nothing else can move, the machine says so (``context.part``), and the threads that are done go on with that.
    """
    entered = active = active_threads(context, mask)
    results = None
    while True:
        condition, *forwarded = yield from test(active, *values)
        results = tuple(forwarded) if results is None else _merge(active, tuple(forwarded), results)
        staying = active & spread(context, condition, np.dtype(np.bool_))
        if not staying.any():
            return results if behind is None else (*results, *(yield from behind(entered, *results)))
        again = yield from body(staying, *forwarded)
        merged = _merge(staying, again, values)
        same = (staying == active).all() and all(np.array_equal(x, y) for x, y in zip(merged, values, strict=True))
        active, values = staying, merged
        if not same:
            yield None
        elif behind is None or (active == entered).all():
            yield SPIN
        else:
            context.may_part += 1
            yield SPIN
            context.may_part -= 1
            if context.part:
                context.part = False
                return (yield from _apart(context, _Loop(entered, active, values, results, test, body), behind))


class _Loop:
    """The rest of a loop that some threads have left. active: those in it. results: its values, of threads that have left."""

    def __init__(self, entered, active, values: tuple, results: tuple, test: Callable, body: Callable) -> None:
        self.entered, self.active, self.values, self.results = entered, active, values, results
        self._test, self._body = test, body

    def rounds(self, context: Program) -> Steps:
        """Lock step of the threads in it."""
        while True:
            condition, *forwarded = yield from self._test(self.active, *self.values)
            self.results = _merge(self.active, tuple(forwarded), self.results)
            staying = self.active & spread(context, condition, np.dtype(np.bool_))
            if not staying.any():
                self.active = staying
                return
            again = yield from self._body(staying, *forwarded)
            merged = _merge(staying, again, self.values)
            same = (staying == self.active).all() and all(np.array_equal(x, y) for x, y in zip(merged, self.values, strict=True))
            self.active, self.values = staying, merged
            yield SPIN if same else None


_LOOK_AGAIN = 64
"""Steps after which threads that spin are tried again although no memory has changed here: another process may have written."""


class _Threads:
    """Some threads on their way: those in the loop (None), or some that have left it together. spins_since: the version of the memory in
    which they have seen that they can't go on.
    """

    def __init__(self, which: np.ndarray | None, steps: Steps) -> None:
        self.which, self.done, self.values = which, False, ()
        self.spins_since: int | None = None
        self._steps = steps

    def step(self, context: Program) -> None:
        """Go on up to where others may run."""
        version = context.memory.version
        try:
            request = next(self._steps)
        except StopIteration as end:
            self.done, self.values = True, end.value
            return
        # A round in which memory has changed, by whomever, says nothing.
        self.spins_since = version if request is not None and version == context.memory.version else None


def _apart(context: Program, loop: _Loop, behind: Callable) -> Steps:
    """The loop and, for threads that leave it together, what comes behind it, side by side; gives the values of both."""
    running = [_Threads(None, loop.rounds(context))]
    gone_on = np.zeros_like(loop.entered)
    ended: list[tuple[np.ndarray, tuple]] = []
    steps = 0
    while running:
        steps += 1
        for threads in running:
            if threads.spins_since != context.memory.version or steps % _LOOK_AGAIN == 0:
                threads.step(context)
        ended += [(threads.which, threads.values) for threads in running if threads.done and threads.which is not None]
        running = [threads for threads in running if not threads.done]
        left = loop.entered & ~loop.active & ~gone_on
        if left.any():
            gone_on = gone_on | left
            running.append(_Threads(left, behind(left, *loop.results)))
        if not running:
            break
        if any(threads.spins_since != context.memory.version for threads in running):
            yield None
        else:
            yield SPIN
            for threads in running:
                threads.spins_since = None
    values = ended[0][1]
    for which, found in ended[1:]:
        values = _merge(which, found, values)
    return (*loop.results, *values)


def of_all_threads(value, is_float: bool):
    """A value that is the same in all threads, as a numpy scalar if it is a float, else as Python's."""
    scalar = value.reshape(-1)[0] if isinstance(value, np.ndarray) else value
    return scalar if is_float else scalar.item() if isinstance(scalar, np.generic) else scalar


def divergent_for(context: Program, mask, lower, upper, step, values: tuple, body: Callable) -> Steps:
    """A ``range`` whose bounds differ from thread to thread."""
    if np.any(np.asarray(step) <= 0):
        raise DeviceAssertionError("the step of a range has to be positive")
    active = active_threads(context, mask)
    index = np.broadcast_to(lower, (context.threads,))
    while True:
        running = active & (index < upper)
        if not running.any():
            return values
        values = _merge(running, (yield from body(running, index, *values)), values)
        index = index + step
