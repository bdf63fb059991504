"""All-gather of Python objects among some ranks, over the group of all: no group has to be made for a team."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from ...errors import AllocationMismatchError


def gather_among(ranks: Sequence[int], rank: int, value: Any, control: Any) -> list[Any]:
    """Everyone's ``value``, in the order of ``ranks``; each of them calls it, and no other rank.

    The first rank collects and sends the whole back. A rank that makes the call of another team at this point is found by what it sends.
    control: a gloo group of all ranks. Raises AllocationMismatchError, naming the two teams.
    """
    ranks = tuple(ranks)
    if len(ranks) == 1:
        return [value]
    root = ranks[0]
    if rank != root:
        dist.send_object_list([(ranks, value)], dst=root, group=control)
        return _answer(_receive(root, control), ranks, rank, root)
    sent = {rank: (ranks, value)} | {peer: _receive(peer, control) for peer in ranks[1:]}
    strangers = [peer for peer, (team, _) in sent.items() if team != ranks]
    answer: Any = [sent[peer][1] for peer in ranks]
    if strangers:
        answer = f"rank {strangers[0]} made a collective call of ranks {list(sent[strangers[0]][0])}"
    for peer in ranks[1:]:
        dist.send_object_list([(ranks, answer)], dst=peer, group=control)
    return _answer((ranks, answer), ranks, rank, root)


def _receive(peer: int, control: Any) -> Any:
    received: list[Any] = [None]
    dist.recv_object_list(received, src=peer, group=control)
    return received[0]


def _answer(message: tuple[tuple[int, ...], Any], ranks: tuple[int, ...], rank: int, root: int) -> list[Any]:
    team, answer = message
    if team == ranks and isinstance(answer, list):
        return answer
    other = answer if isinstance(answer, str) else f"rank {root} made a collective call of ranks {list(team)}"
    raise AllocationMismatchError(
        f"rank {rank} made a collective call of the ranks {list(ranks)}, but {other}; "
        "ranks that are in several teams must make the calls of these teams in the same order"
    )
