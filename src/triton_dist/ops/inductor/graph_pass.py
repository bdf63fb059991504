"""Inductor's pass: products beside collectives of a traced graph become ``ag_gemm``, ``gemm_rs`` and ``gemm_ar``.

It looks at functional collectives, as ``torch.distributed._functional_collectives`` and DTensor's tensor parallelism trace them, in the
graphs that Inductor is about to compile: forward, backward and inference. What does not fit stays as it is, and the report says why.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._inductor import custom_graph_pass
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph

from ...errors import InvalidArgumentError
from ...runtime.world import current_world
from ..gemm import custom_ops
from .gathers import fuse_gather
from .report import Entry, Report, Unsuitable
from .sums import fuse_sum

OPERATORS = ("ag_gemm", "gemm_rs", "gemm_ar")
_HOOK = "post_grad_custom_pre_pass"
"""Before Inductor's own patterns: graphs look as traced then, and its passes for collectives see what is left."""

_InferenceAware: Any = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", CustomGraphPass)
"""What torch calls with ``is_inference``, where there is such a thing."""

_c10d = torch.ops._c10d_functional
_KINDS = {
    _c10d.all_gather_into_tensor.default: ("all_gather", "ag_gemm", fuse_gather),
    _c10d.reduce_scatter_tensor.default: ("reduce_scatter", "gemm_rs", fuse_sum),
    _c10d.all_reduce.default: ("all_reduce", "gemm_ar", fuse_sum),
}


class InductorPass(_InferenceAware):
    """A pass for ``torch._inductor.config.post_grad_custom_pre_pass`` (or ``_post_pass``), which changes a graph in place.

    operators: which of ``OPERATORS`` to use. after: the pass or passes to run before it, such as those that were set.
    report: what was done with each collective of all graphs so far. Graphs that torch takes from its cache on disk do not come by.
    Raises InvalidArgumentError.
    """

    def __init__(self, operators: Sequence[str] = OPERATORS, after: Any = None) -> None:
        unknown = [name for name in operators if name not in OPERATORS]
        if isinstance(operators, str) or unknown:
            raise InvalidArgumentError(f"inductor_pass: operators={operators!r} has to be a sequence of some of {OPERATORS}")
        self.operators = tuple(operators)
        self.replaced = after
        self.before: tuple[Callable, ...] = tuple(after) if isinstance(after, (list, tuple)) else () if after is None else (after,)
        self.report = Report()
        self.graphs = 0

    def __call__(self, graph: Graph, is_inference: bool = False) -> None:
        """Run the passes before, then this one."""
        for each in self.before:
            if _InferenceAware is not CustomGraphPass and isinstance(each, _InferenceAware):
                each(graph, is_inference=is_inference)
            else:
                each(graph)
        number, self.graphs = self.graphs, self.graphs + 1
        for node in list(graph.nodes):
            if node.op != "call_function" or node.target not in _KINDS:
                continue
            kind, operator, fuse = _KINDS[node.target]
            try:
                if operator not in self.operators:
                    raise Unsuitable(f"{operator} is not among the operators of this pass, {self.operators}")
                name = node.name
                used, product = fuse(graph, node)
                entry = Entry(number, name, kind, used, product.node.name, shapes=product.shapes)
            except Unsuitable as reason:
                entry = Entry(number, node.name, kind, None, reason=str(reason))
            self.report.add(entry)

    def uuid(self) -> Any:
        """What Inductor's cache on disk takes for this pass: its source, its options, the world, and the passes before it.

        None, which turns the cache off, if one of those has none.
        """
        world = current_world()
        ranks = None if world is None else (world.world_size, world.device.type)
        before = [each.uuid() if isinstance(each, CustomGraphPass) else None for each in self.before]
        return None if None in before else (_source(), self.operators, ranks, tuple(before))


def _source() -> str:
    """A hash of what decides how graphs are changed."""
    files = [*sorted(Path(__file__).parent.glob("*.py")), Path(custom_ops.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def enable_inductor_pass(operators: Sequence[str] = OPERATORS) -> InductorPass:
    """Let ``torch.compile`` use the operators from now on in this process: sets the pass, after those that are set already.

    Every rank calls it, before it compiles. operators: which of "ag_gemm", "gemm_rs", "gemm_ar" to use. What was compiled before stays.
    Enabled again, the pass is replaced. Returns the pass, whose ``report`` grows with each graph. Raises InvalidArgumentError.
    """
    current = getattr(inductor_config, _HOOK)
    earlier = current.replaced if isinstance(current, InductorPass) else current
    new = InductorPass(operators, after=earlier)
    setattr(inductor_config, _HOOK, new)
    return new


def disable_inductor_pass() -> None:
    """Undo ``enable_inductor_pass``: the passes that were set before it are set again. Nothing if it is not enabled.

    Raises InvalidArgumentError if another pass was set over it since, which would be lost.
    """
    current = getattr(inductor_config, _HOOK)
    if isinstance(current, InductorPass):
        setattr(inductor_config, _HOOK, current.replaced)
    elif current is not None:
        raise InvalidArgumentError(
            f"disable_inductor_pass: torch._inductor.config.{_HOOK} is {current!r} by now, not this package's pass; set it by yourself"
        )


@contextlib.contextmanager
def inductor_pass(operators: Sequence[str] = OPERATORS) -> Iterator[InductorPass]:
    """``enable_inductor_pass`` for what is compiled in the block: a backward is compiled when it runs for the first time."""
    before = getattr(inductor_config, _HOOK)
    new = enable_inductor_pass(operators)
    try:
        yield new
    finally:
        setattr(inductor_config, _HOOK, before)
