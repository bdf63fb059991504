"""Kernels under ``triton.autotune`` that are tuned where they stand: by running the whole function that launches them, config by config.

For kernels that can't be run by themselves, again and again: what they wait for is done by other kernels of the function.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from triton.runtime.autotuner import Config

from ...errors import InvalidArgumentError
from ...ops.collectives.barrier import barrier
from ...runtime.team import Team, find_team
from ...runtime.world import World, current_world
from .contents import Contents, symmetric_tensors
from .report import TuneReport
from .search import Options, Trial, become_idle, search

if TYPE_CHECKING:
    from .kernel import TogetherAutotuner

_here = threading.local()
"""``session`` is what this thread, which may be a simulated rank's, is tuning."""


def contextual_autotune(is_dist: bool = False, n_repeat: int = 5, n_warmup: int = 3) -> Callable[[Callable[..., Any]], ContextualAutoTuner]:
    """Decorator of a host function: kernels under ``triton.autotune`` that it launches are tuned by running all of it.

    It is for kernels by ``triton_dist.jit``; others are tuned as Triton does. The function is run once with the first config of each
    kernel that can be launched, which has to come to its end. Then the configs of one kernel after the other are tried, each with
    ``n_warmup`` runs of the function that are not timed and ``n_repeat`` that are (one of each where the clock is simulated); what the
    function takes counts. Symmetric tensors among its arguments are put back before each run; everything else it has to set up by itself.
    is_dist: all ranks call it, and choose together: a config's time is that of the slowest rank, and one that fails or hangs on a rank is
    out on all. Otherwise each rank chooses for itself, and kernels that communicate are refused.
    Outside of a world the function is just called. Raises InvalidArgumentError; at a call what ``triton_dist.autotune`` raises.
    """
    if not isinstance(is_dist, bool):
        raise InvalidArgumentError(f"contextual_autotune: is_dist={is_dist!r} must be True or False; write contextual_autotune()(function)")
    Options(n_warmup, n_repeat).checked("contextual_autotune")

    def decorate(function: Callable[..., Any]) -> ContextualAutoTuner:
        if not callable(function):
            raise InvalidArgumentError(f"contextual_autotune decorates a host function, not {function!r}")
        return ContextualAutoTuner(function, is_dist, n_repeat, n_warmup)

    return decorate


class ContextualAutoTuner:
    """A function under ``contextual_autotune``; called as the function itself. reports: the last search of each kernel, by its name."""

    def __init__(self, fn: Callable[..., Any], is_dist: bool = False, n_repeat: int = 5, n_warmup: int = 3) -> None:
        functools.update_wrapper(self, fn)
        self.fn, self.is_dist, self.n_repeat, self.n_warmup = fn, is_dist, n_repeat, n_warmup
        self.reports: dict[str, TuneReport] = {}
        self._settled: set[tuple] = set()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method: called with its object first."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        world = current_world()
        symmetric = [] if world is None else symmetric_tensors({"args": args, "kwargs": kwargs})
        key = _key(world, args, kwargs)
        if world is None or active() is not None or symmetric and key in self._settled:
            return self.fn(*args, **kwargs)
        session = _Session(self, world, lambda: self.fn(*args, **kwargs), symmetric)
        _here.session = session
        try:
            result = session.run()
        finally:
            _here.session = None
        self._settled.add(key)
        return result


def active() -> _Session | None:
    """What is being tuned in this thread, for an autotuner that is launched."""
    return getattr(_here, "session", None)


def _key(world: object, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """Calls that look alike launch kernels with the same keys, as far as can be told."""

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return (tuple(value.shape), value.dtype)
        return value if isinstance(value, (int, float, str, bool, type(None))) else type(value).__name__

    return (id(world), *map(plain, args), *((name, plain(kwargs[name])) for name in sorted(kwargs)))


class _Session:
    """One call of a tuned function. found: the kernels that it launches and no config is chosen for, in their order, with what is used."""

    def __init__(self, owner: ContextualAutoTuner, world: World, call: Callable[[], Any], symmetric: list[torch.Tensor]) -> None:
        self._owner, self._world, self._call, self._symmetric = owner, world, call, symmetric
        self._what = getattr(owner.fn, "__qualname__", repr(owner.fn))
        self._team = find_team(None, self._what) if owner.is_dist else Team(0, (world.rank,))
        simulated = world.device.type != "cuda"
        self._options = Options(1 if simulated else owner.n_warmup, 1 if simulated else owner.n_repeat)
        self._found: dict[tuple[TogetherAutotuner, tuple], Config] = {}
        self._candidates: dict[tuple[TogetherAutotuner, tuple], list[Config]] = {}

    def run(self) -> Any:
        """Find out what is launched, tune it, and call the function."""
        if not self._symmetric:
            contents = None
        else:
            become_idle(self._what, self._team, self._options)
            contents = Contents(self._symmetric)
            barrier(self._team)
        result = self._call()
        if not self._found:
            return result

        def put_back() -> None:
            if contents is not None:
                contents.put_back()

        for place in list(self._found):
            self._tune(place, put_back)
        put_back()
        barrier(self._team)
        return self._call()

    def launch(self, tuner: TogetherAutotuner, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A kernel of the function, with the config that is chosen, tried, or used until one is chosen."""
        place = (tuner, tuner.key_of(args, kwargs))
        if place in self._found:
            return self._launch(tuner, self._found[place], args, kwargs)
        chosen = tuner.choices().setdefault(self._world, {}).get(place[1])
        if chosen is not None:
            return self._launch(tuner, chosen, args, kwargs, reset=False)
        if not self._owner.is_dist and tuner.is_together():
            raise InvalidArgumentError(
                f"{self._what}: {tuner.base_fn.__name__} communicates, so all ranks have to choose its config; use "
                "contextual_autotune(is_dist=True)"
            )
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        candidates = tuner.prune_configs(kwargs)
        for number, config in enumerate(candidates):
            try:
                result = self._launch(tuner, config, args, kwargs)
            except Exception:
                if number == len(candidates) - 1:
                    raise
            else:
                self._found[place], self._candidates[place] = config, candidates
                return result
        raise InvalidArgumentError(f"{self._what}: no config of {tuner.base_fn.__name__} is left after pruning")

    def _launch(self, tuner: TogetherAutotuner, config: Config, args: tuple, kwargs: dict[str, Any], reset: bool = True) -> Any:
        named = tuner.named(args, kwargs)
        for name in tuner.reset_to_zero if reset else ():
            if named.get(name) is not None:
                named[name].zero_()
        if config.pre_hook is not None:
            config.pre_hook({**named, **config.all_kwargs()})
        tuner.best_config = config
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())

    def _tune(self, place: tuple[TogetherAutotuner, tuple], put_back: Callable[[], None]) -> None:
        """Choose the config of one kernel; the others keep theirs meanwhile."""
        tuner, key = place
        name = tuner.base_fn.__name__
        known = {f"{config} #{number}": config for number, config in enumerate(self._candidates[place])}
        if len({str(config) for config in known.values()}) == len(known):
            known = {str(config): config for config in known.values()}

        def labels() -> Sequence[str]:
            return list(known)

        def trial(label: str) -> Trial:
            self._found[place] = known[label]
            return Trial(label, self._call, put_back)

        report = search(f"{name} in {self._what}", str(key), self._team, self._options, labels, trial, None)
        self._found[place] = tuner.choices().setdefault(self._world, {})[key] = known[report.chosen]
        tuner.tell(report, key, known)
        self._owner.reports[name] = report


__all__ = ["ContextualAutoTuner", "contextual_autotune"]
