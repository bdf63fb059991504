"""Calls that come again are launched at once: without Triton's look at each argument, and without an operator's own.

An operator keeps the launch of a call under a key with all that decides it but the addresses of the tensors that the caller gives. The next
call with that key takes the compiled kernel and the arguments from there, and its own tensors' addresses. GPUs only: on the simulator
and on CPU processes there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from ..runtime.preload import ALIGNMENT, Launch
from ..runtime.world import require_world
from .team import GrowingBuffer, Team

_DEVICES = ("cuda",)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""What is passed on by its address alone."""
_MOST = 4096
"""Calls that are kept; with more, all are forgotten."""


class _Prepared:
    """One launch. given: the tensors of the caller, in an order of the operator's; contiguous."""

    def __init__(self, launch: Launch, given: tuple[torch.Tensor, ...]) -> None:
        parameters = launch.kernel.signature.parameters
        compiled = launch.kernel.warmup(*launch.arguments, grid=(1,), **launch.options)
        constants = {name: value for name, value in launch.options.items() if name in parameters}
        bound = launch.kernel.signature.bind(*launch.arguments, **constants)
        bound.apply_defaults()
        values, addresses = list(bound.arguments.values()), [tensor.data_ptr() for tensor in given]
        self._places = [
            (place, addresses.index(value.data_ptr()))
            for place, value in enumerate(values)
            if isinstance(value, torch.Tensor) and value.data_ptr() in addresses
        ]
        # What is not the caller's is kept by the workspaces, and launched by address, which the launcher need not ask for.
        self._values = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in values]
        self._runner = compiled[(launch.programs, 1, 1)]

    def run(self, given: tuple[torch.Tensor, ...], stream: Hashable) -> None:
        addresses = [tensor.data_ptr() for tensor in given]
        values = self._values.copy()  # another thread may launch it, too
        for place, number in self._places:
            values[place] = addresses[number]
        self._runner(*values, stream=stream)  # or Triton asks torch which it is


class Calls:
    """The launches of one rank, team and stream. They go with the team's workspaces, whose memory they use."""

    def __init__(self, stream: Hashable) -> None:
        self._stream = stream
        self._prepared: dict[Hashable, _Prepared] = {}
        self._growths = GrowingBuffer.growths

    @staticmethod
    def here(what: str, team: Team) -> Calls | None:
        """Those of a team and the current stream; None where none are kept. what: the operator. Raises NotInitializedError."""
        world = require_world(what)
        if world.device.type not in _DEVICES:
            return None
        stream = world.stream
        key = ("calls", stream, team.ranks)
        calls = world.workspaces.get(key)
        if calls is None:
            calls = world.workspaces[key] = Calls(stream)
        return calls

    def find(self, key: Hashable) -> _Prepared | None:
        """What was kept under ``key``."""
        # Where a workspace has grown, the other ranks' calls use the new memory from now on, and so must this one's.
        if self._growths != GrowingBuffer.growths:
            self._prepared.clear()
            self._growths = GrowingBuffer.growths
        return self._prepared.get(key)

    def run(self, prepared: _Prepared, *given: torch.Tensor) -> None:
        """Launch it with these tensors."""
        prepared.run(given, self._stream)

    def keep(self, key: Hashable, launch: Launch, *given: torch.Tensor) -> None:
        """Keep a launch that has been run with these tensors."""
        if self._growths == GrowingBuffer.growths:
            if len(self._prepared) >= _MOST:
                self._prepared.clear()
            self._prepared[key] = _Prepared(launch, given)


def again(what: str, team: Team, constants: Hashable, x: torch.Tensor, out: torch.Tensor | None) -> bool:
    """Launch a call that looks like one that was kept, before anything of it is checked; whether there was one.

    what, constants: as for ``repeated``, by which such a call of ``x`` and ``out`` was launched. It was checked then; so the constants and
    what tensors look like are all that the operator's checks go by, and where ``x`` and ``out`` share memory, they look again.
    """
    if out is None or type(x) not in _PLAIN or type(out) not in _PLAIN:
        return False
    calls = Calls.here(what, team)
    if calls is None:
        return False
    looks = looks_of(x, out)
    distance = out.data_ptr() - x.data_ptr()
    if looks is None or distance and -out.nbytes < distance < x.nbytes:
        return False
    try:
        prepared = calls.find((what, constants, looks))
    except TypeError:  # a constant that can't be one: the operator says so
        return False
    if prepared is None:
        return False
    calls.run(prepared, x, out)
    return True


def repeated(what: str, team: Team, constants: Hashable, given: tuple[torch.Tensor, ...], make: Callable[[], Launch | None]) -> None:
    """Launch a call: at once if one like it came before, else what ``make`` gives, which is None if it has done the call otherwise.

    what: the operator. constants: what decides the launch besides ``given``, the caller's tensors.
    """
    calls = Calls.here(what, team)
    looks = None if calls is None else looks_of(*given)
    if calls is not None and looks is not None:
        prepared = calls.find((what, constants, looks))
        if prepared is not None:
            calls.run(prepared, *given)
            return
    launch = make()
    if launch is not None:
        launch.run()
        if calls is not None and looks is not None:
            calls.keep((what, constants, looks), launch, *given)


def looks_of(*tensors: torch.Tensor) -> tuple[Hashable, ...] | None:
    """What of contiguous tensors decides how they are launched, for a key; None where one is empty, or not in memory as it reads."""
    looks: list[Hashable] = []
    addresses: list[int] = []
    for tensor in tensors:
        if not tensor.is_contiguous() or not tensor.numel() or tensor.is_neg() or tensor.is_conj():
            return None
        address = tensor.data_ptr()
        addresses.append(address)
        looks += (tensor.shape, tensor.dtype, tensor.get_device(), address % ALIGNMENT, addresses.index(address))
    return tuple(looks)
