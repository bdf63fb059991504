"""What every product over ranks begins with: its team, the graph of the same call, checked arguments, sizes that leave nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...errors import InvalidArgumentError
from ..autocast import without_autocast
from ..replay import Replays
from ..team import Team, find_team
from . import library
from .epilogues import apply_to
from .operands import Operands, Request, checked_operands, checked_output
from .plan import Tiles, check_tiles
from .scatter_plan import MAX_PIECES


@dataclass(frozen=True)
class Operator:
    """A product over ranks.

    methods: those that a caller may ask for, besides "auto". result_rows: of the result on each rank, from those of A and the team; raises
    InvalidArgumentError. gathers: A's rows are gathered, and no bias is taken; else the ranks' products are summed. a_name: what the
    operator calls A. most_blocks: that ``tiles`` may ask for.
    """

    name: str
    methods: tuple[str, ...]
    result_rows: Callable[[int, Team], int]
    gathers: bool = False
    a_name: str = "a"
    most_blocks: int = 1


@dataclass(frozen=True)
class Call:
    """One call with checked arguments, for an operator to carry out.

    tiles, pieces: as given; None leaves them to the operator. gathered: see ``Request``.
    """

    operands: Operands
    out: torch.Tensor
    team: Team
    group: object
    method: str
    tiles: Tiles | None
    gathered: torch.Tensor | None = None
    pieces: int | None = None


def run_call(operator: Operator, request: Request, prepare: Callable[[Call], Callable[[], None] | None]) -> torch.Tensor:
    """Check a call, carry it out and return its result.

    prepare: does what allocates, and returns what queues the call on the current stream, ready to be captured and replayed; or None if
    it has queued all of it (libraries, whose work is not captured). It is not called where there is nothing to multiply, nor for sums
    on one rank.
    """
    team = find_team(request.group, operator.name)
    replays = Replays.here(operator.name, team) if request.gathered is None else None
    if replays is not None and request.out is not None:
        key = request.key(operator.name, request.out)
        graph = None if key is None else replays.find(key)
        if graph is not None:
            graph.replay()
            return request.out
    call = _checked(operator, request, team)
    with without_autocast(call.out.device.type):
        return _carried_out(operator, request, call, replays, prepare)


def _carried_out(
    operator: Operator, request: Request, call: Call, replays: Replays | None, prepare: Callable[[Call], Callable[[], None] | None]
) -> torch.Tensor:
    """A call that was checked and not found among those to be replayed."""
    operands, out, team = call.operands, call.out, call.team
    if out.shape[0] == 0 or (out.numel() == 0 and not operator.gathers):
        return out
    if operands.depth == 0:
        out.zero_() if operands.bias is None else out.copy_(operands.bias.expand_as(out))
        apply_to(out, operands.epilogue)
        return out
    if team.size == 1 and not operator.gathers:
        library.matmul(operands.a, operands.b, out, operands.scales, operands.bias)
        apply_to(out, operands.epilogue)
        return out
    enqueue = prepare(call)
    if enqueue is None:
        return out
    # A copy of A lies elsewhere at each call.
    key = request.key(operator.name, out) if replays is not None and operands.a is request.a else None
    if replays is not None and key is not None:
        replays.run(key, enqueue)
    else:
        enqueue()
    return out


def _checked(operator: Operator, request: Request, team: Team) -> Call:
    """Raises InvalidArgumentError."""
    what = operator.name
    operands = checked_operands(what, request, a_name=operator.a_name, rows_in_line=operator.gathers)
    if request.method != "auto" and request.method not in operator.methods:
        raise InvalidArgumentError(f"{what}: method={request.method!r} is not known; use 'auto' or one of {operator.methods}")
    out = checked_output(what, request.out, operator.result_rows(operands.a.shape[0], team), operands, strided=operator.gathers)
    if request.tiles is not None:
        if not isinstance(request.tiles, Tiles):
            raise InvalidArgumentError(f"{what}: tiles={request.tiles!r}; give a Tiles, or None")
        check_tiles(request.tiles, operator.most_blocks, operands.a.element_size())
    if request.pieces is not None and not (type(request.pieces) is int and 1 <= request.pieces <= MAX_PIECES):
        raise InvalidArgumentError(f"{what}: pieces={request.pieces!r}; give a number from 1 to {MAX_PIECES}, or None")
    return Call(operands, out, team, request.group, request.method, request.tiles, request.gathered, request.pieces)
