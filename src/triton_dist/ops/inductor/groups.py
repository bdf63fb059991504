"""The group of a collective in a graph as a team of this package."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...errors import TritonDistError
from ...runtime.world import require_world
from ..gemm.custom_ops import group_of
from ..team import Team, find_team
from .report import Unsuitable


def team_of(name: Any, size: Any) -> Team:
    """The team of the process group ``name``, which has ``size`` ranks by the graph. Raises Unsuitable if there is none here."""
    if not isinstance(name, str):
        raise Unsuitable(f"its group is given by {type(name).__name__}, not by name")
    try:
        team = find_team(group_of(name), "the Inductor pass")
    except (TritonDistError, LookupError, RuntimeError, ValueError) as error:
        raise Unsuitable(f"its group {name!r} is no team here: {error}") from error
    if size is not None and size != team.size:
        raise Unsuitable(f"it is among {size} ranks, and its group {name!r} has {team.size}")
    if team.size == 1:
        raise Unsuitable(f"its group {name!r} is this rank alone")
    return team


def check_device(tensor: Tensor) -> None:
    """Raises Unsuitable for a tensor that is not on the kind of device whose kernels this rank runs."""
    device = require_world("the Inductor pass").device.type
    if tensor.device.type != device:
        raise Unsuitable(f"it is on {tensor.device.type}, and the operators run on {device} here")
