"""``torch.ops.symm_mem`` on the simulator: what each operator computes, not how torch's kernels do it.

An operator of a group is done when the streams of all its ranks have come to it, as behind the barriers at the begin and end of torch's
kernels. Sums are formed in fp32 in the order of the ranks and rounded once, so that all ranks get the same bits.
"""

from __future__ import annotations

from typing import Any

from ....errors import UnsupportedOperationError
from ...context import RankContext
from . import gathers, products, puts, reductions, splits
from .common import Operator

OPERATORS: dict[str, Operator] = {
    **reductions.OPERATORS,
    **gathers.OPERATORS,
    **products.OPERATORS,
    **splits.OPERATORS,
    **puts.OPERATORS,
}
"""By name."""


def call(rank: RankContext, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Call the operator that ``func`` is. Raises UnsupportedOperationError for one that is not here."""
    schema = func._schema
    name = schema.name.split("::")[1]
    operator = OPERATORS.get(name)
    if operator is None:
        raise UnsupportedOperationError(f"torch.ops.symm_mem.{name} has no meaning on the simulator; it has {', '.join(sorted(OPERATORS))}")
    named = {}
    for position, argument in enumerate(schema.arguments):
        if position < len(args) and not argument.kwarg_only:
            named[argument.name] = args[position]
        else:
            named[argument.name] = kwargs.get(argument.name, argument.default_value)
    return operator(rank, **named)
