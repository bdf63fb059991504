"""Runs the body of one test on simulated ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .. import simulate

if TYPE_CHECKING:
    from . import Setting


def run_on_ranks(body: Callable[..., Any], arguments: Mapping[str, Any], setting: Setting) -> None:
    """Call ``body`` on each rank of a new world, with a symmetric heap of its own. Raises what the first rank that fails raises.

    arguments: the values of the test's fixtures and parameters. Every rank has copies of the tensors in them (also inside of lists, tuples
    and dictionaries), since ranks share no memory; everything else is one object that all ranks see.
    """
    __tracebackhide__ = True
    simulate(
        lambda: body(**{name: own(value) for name, value in arguments.items()}),
        setting.world_size,
        seed=setting.seed,
        schedule=setting.schedule,
        check=setting.check,
        **setting.options,
    )


def own(value: Any) -> Any:
    """The value with tensors copied."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(own(item) for item in value)
    if type(value) is dict:
        return {key: own(item) for key, item in value.items()}
    return value
