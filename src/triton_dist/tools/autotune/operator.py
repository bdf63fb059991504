"""``triton_dist.autotune``: the configs of a whole operator, a host function that launches any number of kernels."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ...errors import InvalidArgumentError
from ...ops.collectives.barrier import barrier
from ...runtime.team import Team, find_team
from ...runtime.world import require_world
from .candidates import Candidate, Given, candidates_of
from .contents import Contents, symmetric_tensors, tensors_in
from .identity import identity_of
from .report import TuneReport
from .search import DEFAULT_TIMEOUT, Options, Trial, search
from .store import Store, machine_of

RESETS = ("restore", "zero", "keep")
"""What is done with symmetric tensors among the arguments before every run."""

_PLAIN = (int, float, str, bool, bytes, type(None), torch.dtype, torch.device)


def autotune(
    configs: Sequence[Any] | Callable[..., Sequence[Any]],
    key: Sequence[str] | Callable[..., Hashable] = (),
    *,
    prune: Callable[[list[Any], dict[str, Any]], Iterable[Any]] | None = None,
    reset: Callable[[dict[str, Any]], Any] | None = None,
    restore: Sequence[str] = (),
    symmetric: str = "restore",
    warmup: int = 1,
    runs: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    cache: bool = True,
    progress: bool | None = None,
) -> Callable[[Callable[..., Any]], TunedOperator]:
    """Decorator: choose some keyword arguments of an operator by trying it, at the first call for each key; collective.

    All ranks of a call run the same configs in the same order and come to the same choice. The time of a config is that of the slowest
    rank; one that raises, or whose kernels wait in vain, on any rank, is out on all of them. The operator is called by all ranks, or by
    those of its argument ``group`` if it has a parameter of that name. A call that gives all the tuned arguments itself is not tuned. A
    method is tuned as a function of its object and the others.

    configs: dicts of keyword arguments, each with the same names, or ``triton.Config``s (its num_warps, num_stages, num_ctas and maxnreg
        count where the operator has such parameters); or a function of the operator's arguments that gives them.
    key: names of parameters whose values a choice holds for (a tensor counts by shape and dtype), or a function of the arguments; the same
        on all ranks. Dtypes of all tensor arguments are part of it anyway.
    prune: gets the list of configs and the arguments by name, gives those to try; the same on all ranks.
    symmetric: what becomes of each symmetric tensor among the arguments (in lists, tuples, dicts and dataclasses, too) before every run and
        before the call that the user made: "restore" what it held when the call was made, "zero" it, or "keep" what is there.
    restore: names of other tensors to treat as "restore" does. reset: called before every run with the arguments by name, for signals
        and counters that are not among them; on all ranks, which meet behind it.
    warmup, runs: of each config, not timed and timed; by default one, and ten on GPUs, one on the simulator, whose clock has no noise.
    timeout: seconds that a wait of a kernel may take while a config is tried; more than compiling takes.
    cache: keep choices on disk, for the same operator (its source, the defaults of its parameters and what it closes over, where that has a
        text of its own; else they are not kept), key, configs, machine, number of ranks and versions.
    progress: show a bar; by default on a terminal.

    Operators keep other workspaces while configs are tried than at other times. Raises InvalidArgumentError; at a call also AutotuneError,
    which says why every config failed, AutotuneMismatchError, and CaptureError where the first call is captured into a CUDA graph.
    """
    options = Options(warmup, runs, timeout, progress).checked("autotune")
    if symmetric not in RESETS:
        raise InvalidArgumentError(f"autotune: symmetric={symmetric!r} is not known; use one of {RESETS}")
    for name, names in (("key", key), ("restore", restore)):
        if not (name == "key" and callable(names)):
            _check_names(name, names)
    for name, function in (("prune", prune), ("reset", reset)):
        if function is not None and not callable(function):
            raise InvalidArgumentError(f"autotune: {name}={function!r} must be a function")

    def decorate(function: Callable[..., Any]) -> TunedOperator:
        if not inspect.isfunction(function):
            raise InvalidArgumentError(
                f"autotune decorates a host function, not {function!r}; a kernel takes triton.autotune, which all ranks then obey together"
            )
        return TunedOperator(function, configs, key, prune, reset, tuple(restore), symmetric, options, cache)

    return decorate


class TunedOperator:
    """An operator under ``autotune``; called as the operator itself. fn: that. reports: what was found, by what it was found for.

    report: the last one; None before the first call.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        configs: Any,
        key: Any,
        prune: Callable[[list[Any], dict[str, Any]], Iterable[Any]] | None,
        reset: Callable[[dict[str, Any]], Any] | None,
        restore: tuple[str, ...],
        symmetric: str,
        options: Options,
        cache: bool,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.what = fn.__qualname__
        self.report: TuneReport | None = None
        self.reports: dict[str, TuneReport] = {}
        self._signature = inspect.signature(fn)
        self._given = Given(self.what, self._signature)
        self._identity = identity_of(fn) if cache else None
        self._configs, self._key, self._prune, self._reset = configs, key, prune, reset
        self._restore, self._symmetric, self._options = restore, symmetric, options
        self._chosen: weakref.WeakKeyDictionary[Any, dict[Hashable, Candidate]] = weakref.WeakKeyDictionary()
        parameters = self._signature.parameters
        unknown = [name for name in (*(() if callable(key) else key), *restore) if name not in parameters]
        if unknown:
            raise InvalidArgumentError(f"autotune of {self.what}: it has no parameter {unknown[0]!r}; it has {', '.join(parameters)}")
        self._fixed = None if callable(configs) else candidates_of(self.what, configs, parameters)
        self._tuned = None if self._fixed is None else tuple(self._fixed[0].keywords)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method: called with its object first."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tuned = self._names_tuned(args, kwargs)
        given = self._given.of(tuned, args, kwargs)
        if given and len(given) == len(tuned):
            return self.fn(*args, **kwargs)
        if given:
            raise InvalidArgumentError(
                f"{self.what}: {', '.join(given)} is given, but {', '.join(tuned)} are tuned together; give all of them or none"
            )
        return self.fn(*args, **kwargs, **self._candidate(args, kwargs, again=False).keywords)

    def tune(self, *args: Any, **kwargs: Any) -> TuneReport:
        """Search anew for these arguments, whatever is known; collective. What is found counts from now on, on disk, too.

        For a method the first argument is its object. Raises InvalidArgumentError where what is tuned is given.
        """
        given = self._given.of(self._names_tuned(args, kwargs), args, kwargs)
        if given:
            raise InvalidArgumentError(f"{self.what}: {', '.join(given)} is given, which is what is tuned; leave it out")
        self._candidate(args, kwargs, again=True)
        assert self.report is not None, "a search has made one"
        return self.report

    def _names_tuned(self, args: tuple, kwargs: dict[str, Any]) -> tuple[str, ...]:
        """The parameters that configs set. Where a function gives the configs, it is asked at the first call."""
        if self._tuned is None:
            every = candidates_of(self.what, self._configs(*args, **kwargs), self._signature.parameters)
            self._tuned = tuple(every[0].keywords)
        return self._tuned

    def _candidate(self, args: tuple, kwargs: dict[str, Any], again: bool) -> Candidate:
        world = require_world(self.what)
        arguments = self._bound(args, kwargs)
        key = self._key_of(args, kwargs, arguments)
        team = find_team(arguments.get("group"), self.what)
        chosen = self._chosen.setdefault(world, {})
        place = (team.ranks, key)
        if again or place not in chosen:
            chosen[place] = self._find(world, team, key, arguments, (args, kwargs), again)
        return chosen[place]

    def _find(
        self, world: Any, team: Team, key: str, arguments: dict[str, Any], call: tuple[tuple, dict[str, Any]], again: bool
    ) -> Candidate:
        args, kwargs = call
        try:
            self._signature.bind(*args, **kwargs, **dict.fromkeys(self._names_tuned(args, kwargs)))
        except TypeError as error:  # one is missing: before all configs fail for it
            raise InvalidArgumentError(f"{self.what}: {error}") from None
        known: dict[str, Candidate] = {}
        contents: list[Contents] = []

        def labels() -> list[str]:
            known.update({each.label: each for each in self._to_try(args, kwargs, arguments)})
            return list(known)

        def prepare() -> None:
            for each in contents:
                each.put_back()
            if self._symmetric == "zero":
                for tensor in symmetric_tensors(arguments):
                    tensor.zero_()
            if self._reset is not None:
                self._reset(arguments)

        def trial(label: str) -> Trial:
            # The first trial begins with the device idle on all ranks, and they meet before one changes anything.
            if not contents:
                restored = symmetric_tensors(arguments) if self._symmetric == "restore" else []
                contents.append(Contents([*restored, *tensors_in([arguments.get(name) for name in self._restore])]))
            return Trial(label, lambda: self.fn(*args, **kwargs, **known[label].keywords), prepare)

        def store(own: Sequence[str]) -> Store:
            source = hashlib.sha256((self._identity or "").encode()).hexdigest()
            where = f"{self.fn.__module__}.{self.what}"
            facts = {"what": where, "source": source, "key": key, "configs": "\n".join(own), "team": str(len(team.ranks))}
            return (_AlwaysAnew if again else Store)(where, facts | machine_of(world))

        report = search(self.what, key, team, self._options, labels, trial, None if self._identity is None else store)
        if contents:
            prepare()
            barrier(team)
        self.report = self.reports[key] = report
        return known[report.chosen]

    def _to_try(self, args: tuple, kwargs: dict[str, Any], arguments: dict[str, Any]) -> list[Candidate]:
        every = self._fixed
        if every is None:
            every = candidates_of(self.what, self._configs(*args, **kwargs), self._signature.parameters)
        if self._prune is None:
            return every
        kept = list(self._prune([each.config for each in every], dict(arguments)))
        by_config = [(each.config, each) for each in every]
        left = [next((each for config, each in by_config if config is wanted or config == wanted), None) for wanted in kept]
        if None in left or not left:
            raise InvalidArgumentError(f"{self.what}: prune gave {kept!r}; it has to give some of the configs that it got, at least one")
        return [each for each in left if each is not None]

    def _bound(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments that are given, by name, and defaults. Raises InvalidArgumentError for one that the operator has not."""
        try:
            bound = self._signature.bind_partial(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgumentError(f"{self.what}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _key_of(self, args: tuple, kwargs: dict[str, Any], arguments: Mapping[str, Any]) -> str:
        """What a choice holds for, in words: equal texts are equal keys."""
        if callable(self._key):
            parts = [f"key={_plain(self.what, 'key', self._key(*args, **kwargs))}"]
        else:
            parts = [f"{name}={_plain(self.what, name, arguments.get(name))}" for name in self._key]
        dtypes = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors_in(dict(arguments))]
        return ", ".join([*parts, *(["dtypes " + " ".join(dtypes)] if dtypes else [])])


def _check_names(name: str, names: Any) -> None:
    """Raises InvalidArgumentError unless ``names`` are texts, but not one text."""
    if isinstance(names, str) or not isinstance(names, Iterable) or not all(isinstance(each, str) for each in names):
        allowed = "a sequence of names of parameters, such as ('x',)" + ", or a function" * (name == "key")
        raise InvalidArgumentError(f"autotune: {name}={names!r} must be {allowed}")


class _AlwaysAnew(Store):
    """A place to keep a result, of which nothing is read."""

    def load(self, labels: Sequence[str]) -> TuneReport | None:
        return None


def _plain(what: str, name: str, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(_plain(what, name, item) for item in value)})"
    if isinstance(value, _PLAIN):
        return repr(value)
    raise InvalidArgumentError(
        f"{what}: {name}={value!r} can't be part of a key, which has to be the same on all ranks and in other processes; give key= as a "
        "function that makes numbers, texts or tuples of the arguments"
    )
