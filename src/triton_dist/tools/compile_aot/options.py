"""Options of a compilation, looked at before Triton gets them: it tells of some in words of its passes, and of others by an assertion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import triton

from ...errors import InvalidArgumentError
from ...runtime.address_map import MAX_WORLD_SIZE

_MOST_WARPS, _MOST_BLOCKS = 32, 16


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_power(value: Any, most: int) -> bool:
    return _is_number(value, 1, most) and value & (value - 1) == 0


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "num_warps": (lambda value: _is_power(value, _MOST_WARPS), f"a power of two, 1 to {_MOST_WARPS}"),
    "num_ctas": (lambda value: _is_power(value, _MOST_BLOCKS), f"a power of two, 1 to {_MOST_BLOCKS}"),
    "num_stages": (lambda value: _is_number(value, 0, 1 << 10), "a number of stages, 0 or more"),
    "maxnreg": (lambda value: value is None or _is_number(value, 1, 1 << 10), "a number of registers, 1 or more, or None"),
    "launch_cooperative_grid": (lambda value: isinstance(value, bool), "True or False"),
    "launch_pdl": (lambda value: isinstance(value, bool), "True or False"),
}
"""For the options that spaces name: what they may be, as a test and in words."""

OPTIONS = tuple(_RULES)


def check_values(what: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError for an option of ``OPTIONS`` with a value that it can't have. what: it is for."""
    for name, value in options.items():
        if name in _RULES and not _RULES[name][0](value):
            raise InvalidArgumentError(f"{what}{name}={value!r} must be {_RULES[name][1]}")


def check_options(backend: Any, options: Mapping[str, Any]) -> None:
    """Raise InvalidArgumentError for options that the backend does not know, or that can't have their value."""
    known = vars(backend.parse_options({}))
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidArgumentError(f"no compile option {', '.join(unknown)}; Triton {triton.__version__} has {', '.join(sorted(known))}")
    check_values("compile option ", options)


def check_world_size(what: str, world_size: Any) -> None:
    """Raise InvalidArgumentError for what is no number of ranks; 0 stands for any."""
    if not _is_number(world_size, 0, MAX_WORLD_SIZE):
        raise InvalidArgumentError(f"{what}: world_size={world_size!r} must be a number of ranks, 1 to {MAX_WORLD_SIZE}, or 0 for any")
