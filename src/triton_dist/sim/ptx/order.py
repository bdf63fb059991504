"""What orders memory, and where threads meet: semantics and scopes, fence, membar, bar."""

from __future__ import annotations

import numpy as np

from ...errors import TrapError
from ..check.actors import EACH
from ..check.order import ORDERS, SCOPES, Order
from .form import Form, Step, contents, opcode
from .syntax import Immediate, Instruction

SCOPE_WORDS = {"cta": "cta", "cluster": "cta", "gpu": "gpu", "sys": "sys"}
"""PTX's scopes as the race check's. A cluster is one block: Triton launches larger ones only for ``num_ctas``, which is not simulated."""

_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
_FENCES = ("sc", "acq_rel", "acquire", "release")
_MEMBAR = {"cta": "cta", "gl": "gpu", "sys": "sys"}


def order_of(form: Form, semantics: tuple[str, ...], default: tuple[str, str] | None) -> Order | None:
    """Semantic and scope of an access. semantics: that this instruction may have. default: what it has without any; None is weak.

    A volatile access, and one by ``.mmio``, counts as relaxed at system scope, as PTX says.
    """
    if form.flag("volatile"):
        return ORDERS["relaxed", "sys"]
    if form.flag("weak"):
        if default is not None:
            raise form.instruction.wrong("an atomic is never weak")
        return None
    mmio = form.flag("mmio")
    semantic = form.one_of(semantics, "")
    scope = form.one_of(SCOPE_WORDS, "")
    if mmio:
        return ORDERS["relaxed", "sys"]
    if not semantic and not scope:
        return None if default is None else ORDERS[default]
    if not semantic and default is None:
        raise form.instruction.wrong(f"a scope (.{scope}) needs one of {', '.join('.' + word for word in semantics)}")
    if not scope and default is None:
        raise form.instruction.wrong(f".{semantic} needs a scope: .cta, .cluster, .gpu or .sys")
    return ORDERS[semantic or "relaxed", SCOPE_WORDS[scope or "gpu"]]


@opcode("fence")
def _fence(instruction: Instruction) -> Step:
    form = Form(instruction)
    if form.left[:1] in (["proxy"], ["mbarrier_init"]):
        # One proxy, the generic one, is simulated, and no mbarrier.
        return Step(lambda frame, mask: None, touches=True)
    form.one_of(_FENCES, "acq_rel")
    scope = form.one_of(SCOPE_WORDS)
    form.drop(("sync_restrict",))
    form.done(0)
    return _fence_step(SCOPE_WORDS[scope])


@opcode("membar")
def _memory_barrier(instruction: Instruction) -> Step:
    form = Form(instruction)
    if form.left[:1] == ["proxy"]:
        return Step(lambda frame, mask: None, touches=True)
    scope = form.one_of(_MEMBAR)
    form.done(0)
    return _fence_step(_MEMBAR[scope])


def _fence_step(scope: str) -> Step:
    def run(frame, mask) -> None:
        actor = frame.context.race
        if actor is None:
            return
        if (mask is None and frame.covers_block) or not frame.known:
            actor.fence(SCOPES[scope], EACH)
            return
        for thread in frame.threads[frame.chosen(mask)].tolist():
            actor.fence(SCOPES[scope], thread)

    return Step(run, touches=True, orders=True)


@opcode("griddepcontrol")
def _dependent_launch(instruction: Instruction) -> Step:
    """A dependent launch may only start earlier than stream order lets it; here it starts in stream order."""
    form = Form(instruction)
    form.one_of(("wait", "launch_dependents"))
    form.done(0)
    return Step(lambda frame, mask: None, touches=True)


@opcode("trap")
def _trap(instruction: Instruction) -> Step:
    """It ends the run, as it ends the context of a GPU."""
    Form(instruction).done(0)

    def run(frame, mask) -> None:
        threads = frame.threads[frame.chosen(mask)]
        who = f"thread {threads[0]}" if len(threads) == 1 else f"{len(threads)} threads, the first of them {threads[0]}"
        raise TrapError(f"trap, by {who}; a GPU's process ends there")

    return Step(run, touches=True, yields_before=True)


@opcode("nanosleep")
def _sleep(instruction: Instruction) -> Step:
    form = Form(instruction)
    form.type(("u32",))
    form.done(1)
    (time,) = instruction.operands
    contents(instruction, time, 32, "su")
    nanoseconds = float(time.value) if isinstance(time, Immediate) else 100.0

    def run(frame, mask) -> None:
        frame.context.clock += nanoseconds

    return Step(run, touches=True)


def bits_of_warp(threads: np.ndarray, warp: int) -> int:
    """The lanes of a warp as a mask."""
    mine = threads[threads // 32 == warp] % 32
    return int((np.uint64(1) << mine.astype(np.uint64)).sum())
