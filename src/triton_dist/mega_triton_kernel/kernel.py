"""The kernel that a whole program runs in, and what the bodies of its tasks are written with.

Every program of a persistent grid goes through tasks: it waits for the words of the tiles that a task needs, runs the task's body, and
tells who waits for it. A tile that is waited for by itself has a word, set to the number of the run; an operation that is waited for as a
whole has one that all its tiles add to, so that waiting for many tiles takes no longer than for one. Words only grow, so nothing has to be
reset between two runs. All programs have to be on the GPU at the same time, which a grid of at most one program a multiprocessor ensures.

A body is a function of ``@triton.jit``, ``body(task, tile, run, CONSTANTS)``: ``tensor_of(task, i, DTYPE)`` is its i-th tensor, ``run`` the
number of the run, from 1 on, which words of its own may count too. It is called by all threads of the block, ends with everything stored,
and waits for nothing but peers that run the same program.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

import triton_dist
import triton_dist.language as dl
from triton_dist.tools.profiler import Profiler

KIND_AND_TILE, WAITS, WORD_AND_COUNT, FIRST_AND_COUNTER, FIRST_TENSOR = range(5)
"""Places in the record of a task, int64, two numbers each but the last: its kind and its tile; the first of its waits but one, and the end
of those; its own word (-1: nobody waits for it alone), and the count of its first wait (0: there is none); the word of that, and the
operation's counter (-1: nobody waits for all of it); addresses of its tensors.

The count of a wait: so many words in a row have to have reached the number of the run; if negative, one word that many times it."""
RECORD = 16
"""int64 words of a record: one cache line."""
RUN, NEXT, LEFT, STATE = range(4)
"""Places in the state of a program, int32: runs that are complete; where programs take tasks as they come, how often one was told the next;
how often a program has left a run; and how many places there are."""
WAITING = 0
"""The number under which the trace has waits; kinds follow."""

_WAITS, _WORD_AND_COUNT, _FIRST_AND_COUNTER = tl.constexpr(WAITS), tl.constexpr(WORD_AND_COUNT), tl.constexpr(FIRST_AND_COUNTER)
_FIRST_TENSOR, _RECORD = tl.constexpr(FIRST_TENSOR), tl.constexpr(RECORD)
_RUN, _NEXT, _LEFT, _WAITING = tl.constexpr(RUN), tl.constexpr(NEXT), tl.constexpr(LEFT), tl.constexpr(WAITING)


@dataclass(frozen=True)
class Kind:
    """A body and what it is compiled for; see ``graph.Operation``."""

    body: JITFunction
    constants: Any


@dataclass(frozen=True)
class Kinds:
    """All kinds of tasks of a program, in the order of their numbers; a constant of the kernel."""

    kinds: tuple[Kind, ...]

    @functools.cached_property
    def cache_key(self) -> str:
        """What Triton's cache on disk tells two programs apart by: sources of the bodies too."""
        return str([(kind.body.cache_key, repr(kind.constants)) for kind in self.kinds])

    def __hash__(self) -> int:
        # Asked at every launch.
        return hash(self.cache_key)

    def __str__(self) -> str:
        return self.cache_key


@triton.constexpr_function
def _count(kinds):
    return len(kinds.kinds)


@triton.constexpr_function
def _body(kinds, index):
    return kinds.kinds[index].body


@dataclass(frozen=True)
class _Constants:
    """A body's constants as it sees them: each field as ``tl.constexpr``."""

    values: Any

    def __getattr__(self, name: str) -> tl.constexpr:
        if name.startswith("_"):
            raise AttributeError(name)
        return tl.constexpr(getattr(self.values, name))


@triton.constexpr_function
def _constants(kinds, index):
    return _Constants(kinds.kinds[index].constants)


@triton.jit
def tensor_of(task, INDEX: tl.constexpr, DTYPE: tl.constexpr):
    """Pointer to the first element of the task's tensor number ``INDEX``, which is aligned to 16 bytes."""
    return tl.multiple_of(tl.load(task + (_FIRST_TENSOR + INDEX)).to(tl.pointer_type(DTYPE)), 16)


@triton.jit
def _halves(packed):
    """The lower and the upper 32 bits of an int64."""
    return packed.to(tl.int32), (packed >> 32).to(tl.int32)


@triton.jit
def _body_of_kind(task, tile, run, KINDS: tl.constexpr, INDEX: tl.constexpr):
    BODY: tl.constexpr = _body(KINDS, INDEX)
    BODY(task, tile, run, _constants(KINDS, INDEX))


@triton.jit
def _dispatch(task, kind, tile, run, KINDS: tl.constexpr):
    for index in tl.static_range(_count(KINDS)):
        if kind == index:
            _body_of_kind(task, tile, run, KINDS, index)


@triton.jit
def _wait(words, count, run):
    """count: as in the records."""
    dl.wait(words, tl.maximum(count, 1), "gpu", "acquire", waitValue=run * tl.maximum(-count, 1), cmp="ge")


@triton.jit
def _run_task(task, waits, words, run, profiler, KINDS: tl.constexpr, PROFILE: tl.constexpr):
    """One task from its waits to its word; returns the profiler."""
    kind, tile = _halves(tl.load(task))
    first, end = _halves(tl.load(task + _WAITS))
    word, count = _halves(tl.load(task + _WORD_AND_COUNT))
    at, counter = _halves(tl.load(task + _FIRST_AND_COUNTER))
    if PROFILE:
        profiler = profiler.record(True, _WAITING)
    if count != 0:
        _wait(words + at, count, run)
    for index in range(first, end):
        _wait(words + tl.load(waits + 2 * index), tl.load(waits + 2 * index + 1), run)
    if PROFILE:
        profiler = profiler.record(False, _WAITING)
        profiler = profiler.record(True, kind + 1)
    _dispatch(task, kind, tile, run, KINDS)
    if word >= 0:
        dl.notify(words + word, 0, signal=run, sig_op="set", comm_scope="gpu")
    if counter >= 0:
        dl.notify(words + counter, 0, signal=1, sig_op="add", comm_scope="gpu")
    if PROFILE:
        profiler = profiler.record(False, kind + 1)
    return profiler


@triton_dist.jit
def mega_kernel(
    queue, starts, waits, words, state, profiler_buffer,
    KINDS: tl.constexpr, TAKE: tl.constexpr, PROFILE: tl.constexpr,
):  # fmt: skip
    """Runs a program once. queue: int64 (tasks, ``RECORD``). waits: int32 (waits, 2): first word and count.

    starts: int32; program ``p`` runs tasks ``starts[p]`` to ``starts[p + 1]``, in that order; if TAKE, the programs take tasks from
    0 to ``starts[0]`` as they come. words: int32, see above. state: int32 (``STATE``,).
    """
    run = tl.load(state + _RUN) + 1
    profiler = Profiler.create(profiler_buffer, 0, ENABLE_PROFILING=PROFILE)
    programs = tl.num_programs(0)
    if TAKE:
        tasks = tl.load(starts)
        # In each run every program is told once too often; numbers wrap around.
        told = (run - 1) * (tasks + programs)
        task = tl.atomic_add(state + _NEXT, 1, sem="relaxed", scope="gpu") - told
        while task < tasks:
            profiler = _run_task(queue + task.to(tl.int64) * _RECORD, waits, words, run, profiler, KINDS, PROFILE)
            task = tl.atomic_add(state + _NEXT, 1, sem="relaxed", scope="gpu") - told
    else:
        program = tl.program_id(0)
        for task in range(tl.load(starts + program), tl.load(starts + program + 1)):
            profiler = _run_task(queue + tl.cast(task, tl.int64) * _RECORD, waits, words, run, profiler, KINDS, PROFILE)
    # Who leaves last begins the next run. All threads of all programs have read the number of this one by then.
    tl.debug_barrier()
    if tl.atomic_add(state + _LEFT, 1, sem="acq_rel", scope="gpu") + 1 == run * programs:
        tl.store(state + _RUN, run)
