"""What a process has one of, kept apart for each simulated rank: environment, random states, torch.distributed's world."""

from __future__ import annotations

import builtins
import gc
import os
import random
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch.distributed import distributed_c10d as c10d

_numpy_random: Any = np.random
"""numpy's stubs do not list the two functions that swap the bit generator."""

_WORLD_NAMES = ("_world", "_backend", "_default_pg_init_method")
"""Globals of torch.distributed that say which groups this process is in."""


_ATTRIBUTES = ((sys, "stdout"), (sys, "stderr"), (builtins, "print"), (sys, "argv"))
"""What scripts replace: output, to silence all ranks but one, and arguments."""


class ProcessState(Protocol):
    """More state that a process has one of; ``simulate`` can keep some of it for each rank."""

    def take(self) -> Any:
        """The state of the rank that runs now."""

    def exchange(self, before: Any, after: Any) -> None:
        """Put ``after``, another rank's state, in place of ``before``, which ``take`` gave."""


def _raw_environment() -> dict[bytes, bytes]:
    """The environment as bytes. ``dict(os.environb)`` says the same a hundred times slower, and this runs at every switch."""
    return dict(getattr(os.environ, "_data", os.environb))


class VirtualProcess:
    """The saved process-wide state of one rank, or of the caller of ``simulate``.

    Exactly one is installed at any time. ``install`` puts this one in place of ``previous``, which keeps what it had.
    """

    def __init__(self, more: Sequence[ProcessState] = ()) -> None:
        self._more = tuple(more)
        self.save()

    @classmethod
    def for_rank(cls, rank: int, environ: dict[str, str], world: Any, more: Sequence[ProcessState] = ()) -> VirtualProcess:
        """A fresh process for ``rank``: the caller's environment plus ``environ``, and random states seeded by the rank.

        Real processes start with the same torch seed; here each rank has its own, so that a rank that reads its own
        shard in place of a peer's is not right by accident.
        """
        process = cls(more)
        process.environ.update((os.fsencode(name), os.fsencode(value)) for name, value in environ.items())
        process.torch_state = torch.Generator().manual_seed(rank).get_state()
        process.numpy_bits = np.random.MT19937(rank)
        process.random_state = random.Random(rank).getstate()
        process.world = {"_world": world, "_backend": None, "_default_pg_init_method": None}
        return process

    def save(self) -> None:
        """Remember the present state as this process's."""
        self.environ = _raw_environment()
        self.torch_state = torch.default_generator.get_state()
        self.numpy_bits = _numpy_random.get_bit_generator()
        self.random_state = random.getstate()
        self.default_dtype = torch.get_default_dtype()
        self.attributes = [getattr(module, name) for module, name in _ATTRIBUTES]
        self.taken = [state.take() for state in self._more]
        self.world: dict[str, Any] = {name: getattr(c10d, name) for name in _WORLD_NAMES}

    def install(self, previous: VirtualProcess) -> None:
        """Save the present state into ``previous`` and put this process's in its place."""
        if previous is self:
            return
        previous.save()
        for name in previous.environ.keys() - self.environ.keys():
            del os.environb[name]
        for name, value in self.environ.items() - previous.environ.items():
            os.environb[name] = value
        torch.default_generator.set_state(self.torch_state)
        _numpy_random.set_bit_generator(self.numpy_bits)
        random.setstate(self.random_state)
        if self.default_dtype != previous.default_dtype:
            torch.set_default_dtype(self.default_dtype)
        for (module, attribute), value in zip(_ATTRIBUTES, self.attributes, strict=True):
            setattr(module, attribute, value)
        for state, before, after in zip(self._more, previous.taken, self.taken, strict=True):
            state.exchange(before, after)
        for attribute, item in self.world.items():
            setattr(c10d, attribute, item)


_COLLECTOR_THRESHOLDS = (100_000, 50, 100)
"""A run holds thousands of suspended programs; traversing them as often as usual takes a third of its time."""

_CHECKED_THRESHOLDS = (5_000_000, 50, 100)
"""The same where accesses are checked: clocks are many objects that would be looked at in vain."""


class RunWideState:
    """Process-wide settings that a run or its ranks change and that ``simulate`` puts back when it ends. checked: accesses are checked."""

    def __init__(self, checked: bool = False) -> None:
        self.collector = gc.get_threshold()
        if self.collector[0]:
            gc.set_threshold(*(_CHECKED_THRESHOLDS if checked else _COLLECTOR_THRESHOLDS))
        self.excepthook = sys.excepthook
        self.threads = torch.get_num_threads()
        self.deterministic = torch.get_deterministic_debug_mode()
        self.matmul_precision = torch.get_float32_matmul_precision()
        self.warnings = list(warnings.filters)

    def restore(self) -> None:
        """Put the settings back as they were when this object was made."""
        if warnings.filters != self.warnings:
            # catch_warnings would make every warning that was shown once come again.
            warnings.resetwarnings()
            warnings.filters[:] = self.warnings  # type: ignore[index]
        sys.excepthook = self.excepthook
        gc.set_threshold(*self.collector)
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        if torch.get_deterministic_debug_mode() != self.deterministic:
            torch.set_deterministic_debug_mode(self.deterministic)
        if torch.get_float32_matmul_precision() != self.matmul_precision:
            torch.set_float32_matmul_precision(self.matmul_precision)
