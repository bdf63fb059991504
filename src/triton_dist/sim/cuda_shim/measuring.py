"""What scripts measure with: ``triton.testing.do_bench`` in simulated time, and marks for profilers, which there are none of here."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import InvalidArgumentError, MissingNameError
from ...profiler_utils import bounded_rounds
from .streams import Event, here

ROUNDS = 3
"""How often do_bench runs its function at most, after one run that is not counted."""

_MODES: dict[str, Callable[[list[float]], Any]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "all": list,
}


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """``triton.testing.do_bench``: simulated milliseconds of ``fn()``, of few runs, whatever ``warmup`` and ``rep`` ask for.

    Raises InvalidArgumentError for a return_mode or a quantile that there is not.
    """
    here("triton.testing.do_bench")
    if return_mode not in _MODES:
        raise InvalidArgumentError(f"do_bench: return_mode={return_mode!r} must be one of {list(_MODES)}")
    if any(not 0 <= quantile <= 1 for quantile in quantiles or ()):
        raise InvalidArgumentError(f"do_bench: quantiles={quantiles!r} must be numbers from 0 to 1")
    fn()
    events = []
    for _ in range(bounded_rounds(ROUNDS, 1)[0]):
        for tensor in grad_to_none or ():
            tensor.grad = None
        events.append((Event(enable_timing=True), Event(enable_timing=True)))
        events[-1][0].record()
        fn()
        events[-1][1].record()
    events[-1][1].synchronize()
    times = [start.elapsed_time(end) for start, end in events]
    if not quantiles:
        return _MODES[return_mode](times)
    found = torch.quantile(torch.tensor(times, dtype=torch.float64), torch.tensor(quantiles, dtype=torch.float64)).tolist()
    return found[0] if len(found) == 1 else found


class cudaError(enum.IntEnum):  # noqa: N801  (torch's name)
    """``torch.cuda.cudart().cudaError``."""

    success = 0


class Cudart:
    """``torch.cuda.cudart()``: profilers may be started and stopped; there is none that would hear of it."""

    cudaError = cudaError

    @staticmethod
    def cudaProfilerStart() -> int:  # noqa: N802  (the runtime's names)
        return int(cudaError.success)

    @staticmethod
    def cudaProfilerStop() -> int:  # noqa: N802
        return int(cudaError.success)

    @staticmethod
    def cudaGetErrorString(error: int) -> str:  # noqa: N802
        return "no error" if error == cudaError.success else f"error {error}"

    def __getattr__(self, name: str) -> Any:
        raise MissingNameError(
            f"torch.cuda.cudart().{name} has no meaning on the simulator; cuda.bindings.runtime has the functions that work there"
        )


CUDART = Cudart()


def get_sync_debug_mode() -> int:
    """``torch.cuda.get_sync_debug_mode``: what the rank has set, 0 at first."""
    return here("torch.cuda.get_sync_debug_mode()").workspaces.get("sync debug mode", 0)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """``torch.cuda.set_sync_debug_mode``: it is remembered, but nothing is reported of waits of the host."""
    numbers = {"default": 0, "warn": 1, "error": 2}
    number = numbers.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if number not in numbers.values():
        raise InvalidArgumentError(f"torch.cuda.set_sync_debug_mode({debug_mode!r}): expected 0 to 2, or one of {list(numbers)}")
    here("torch.cuda.set_sync_debug_mode()").workspaces["sync debug mode"] = number
