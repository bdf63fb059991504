"""Torch's modes that keep a rank's operators in stream order, for as long as a world lives instead of during a function."""

from __future__ import annotations

from typing import Any

from torch import overrides
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext

from ..context import RankContext
from ..host_reads import HostReads
from ..torch_mode import StreamOrder


class RankModes:
    """The modes of a simulated rank, in the thread that makes and leaves the world.

    They go below the modes that the program has entered before and leaves later, which take the top one off without looking.
    """

    def __init__(self, context: RankContext) -> None:
        self._reads, self._order = HostReads(context), StreamOrder(context)

    def enter(self) -> None:
        """Begin."""
        above = _take_functions()
        # torch wants the one of the default device to be the lowest.
        lowest = [mode for mode in above if isinstance(mode, DeviceContext)]
        for mode in (*lowest, self._reads, *(mode for mode in above if mode not in lowest)):
            overrides._push_mode(mode)
        above = _take_dispatch()
        self._order.__enter__()
        for mode in above:
            dispatch._push_mode(mode)

    def leave(self) -> None:
        """End; the program's modes stay as they are."""
        for mode in _take_functions():
            if mode is not self._reads:
                overrides._push_mode(mode)
        modes = _take_dispatch()
        if self._order in modes:
            dispatch._push_mode(self._order)
            self._order.__exit__(None, None, None)
        for mode in modes:
            if mode is not self._order:
                dispatch._push_mode(mode)


def _take_functions() -> list[Any]:
    """Take all function modes of this thread off; the lowest comes first."""
    return [overrides._pop_mode() for _ in range(overrides._len_torch_function_stack())][::-1]


def _take_dispatch() -> list[Any]:
    """As ``_take_functions``, of dispatch modes."""
    return [dispatch._pop_mode() for _ in range(dispatch._len_torch_dispatch_stack())][::-1]
