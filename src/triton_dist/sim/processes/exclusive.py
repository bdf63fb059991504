"""Kernels whose atomics and signals are one step for all processes.

Generated code calls the run time by module names in its globals. Here it gets other modules: every function that may change a
word takes the shared lock; what only reads, or moves tiles of data, does not, so that ranks compute side by side.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, cast

from ..kernel import Kernel
from ..ops import arith, debug, descriptor, divergence, inline_asm, matrix, memory, primitives, reduce, timing
from ..requests import Steps
from .shared_lock import SharedLock

_OPS = memory.__name__.rpartition(".")[0] + "."
"""What the names of the run time's modules begin with."""

_PURE = (arith, debug, divergence, matrix, reduce, timing)
"""Modules that touch no memory themselves."""

_FREE: dict[ModuleType, tuple[str, ...]] = {
    memory: ("load", "load_scalar"),
    descriptor: ("load", "store", "gather", "scatter"),
    primitives: (
        *("symm_at", "symm_at_tile", "symm_at_each", "thread_index", "check_all_threads", "load_word", "load_each"),
        *("wait", "wait_each", "atomic_poll", "atomic_poll_tile"),
    ),
    inline_asm: ("compute", "call_once"),
}
"""Functions that need no lock, by module: what is not here, modules too, gets it."""


class ExclusiveKernels:
    """Makes of a kernel one that holds ``lock`` whenever it changes a word. Each is made once."""

    def __init__(self, lock: SharedLock) -> None:
        self._lock = lock
        self._made: dict[Kernel, Kernel] = {}
        self._modules: dict[ModuleType, Any] = {module: module for module in _PURE}

    def of(self, kernel: Kernel) -> Kernel:
        """The same kernel, with the lock."""
        made = self._made.get(kernel)
        if made is None:
            made = self._made[kernel] = copy.copy(kernel)
            made.function = self._rebound(kernel.function)
        return made

    def _rebound(self, function: Any) -> Any:
        """``function`` with all functions of its module, looking up other names."""
        before = function.__globals__
        after: dict[str, Any] = {}
        for name, value in before.items():
            if isinstance(value, ModuleType) and value.__name__.startswith(_OPS):
                value = self._module(value)
            elif isinstance(value, FunctionType) and value.__globals__ is before:
                value = _with_globals(value, after)
            after[name] = value
        rebound = after[function.__name__]
        rebound.source = function.source
        return rebound

    def _module(self, module: ModuleType) -> Any:
        if module not in self._modules:
            self._modules[module] = self._wrapped(module, _FREE.get(module, ()))
        return self._modules[module]

    def _wrapped(self, module: ModuleType, free: tuple[str, ...]) -> SimpleNamespace:
        names = dict(vars(module))
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and name not in free:
                names[name] = locked_steps(value, self._lock) if inspect.isgeneratorfunction(value) else self._locked(value)
        if module is memory:
            names["store"] = self._store
        return SimpleNamespace(**names)

    def _locked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        acquire, release = self._lock.acquire, self._lock.release

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            acquire()
            try:
                return function(*arguments)
            finally:
                release()

        return call

    def _store(self, context: Any, pointers: Any, value: Any, masks: tuple, dtype: Any, *rest: Any) -> None:
        """A tile store. One of integers may reset signals that peers add to."""
        if dtype.kind in "iu":
            with self._lock:
                memory.store(context, pointers, value, masks, dtype, *rest)
        else:
            memory.store(context, pointers, value, masks, dtype, *rest)


def _with_globals(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    rebound = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    rebound.__kwdefaults__ = function.__kwdefaults__
    return rebound


def locked_steps(function: Callable[..., Steps], lock: SharedLock) -> Callable[..., Steps]:
    """A generator function that holds the lock during each of its steps, and not while it waits."""

    @functools.wraps(function)
    def steps(*arguments: Any) -> Iterator[Any]:
        generator = function(*arguments)
        while True:
            with lock:
                try:
                    request = next(generator)
                except StopIteration as end:
                    return end.value
            yield request

    return cast(Callable[..., Steps], steps)
