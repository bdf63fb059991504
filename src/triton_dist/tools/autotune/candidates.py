"""The configs of an operator as keyword arguments, with a label by which ranks and the cache name them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import triton

from ...errors import InvalidArgumentError

_OF_TRITON = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Fields of ``triton.Config`` beside ``kwargs``: passed to an operator that has parameters of these names."""


@dataclass(frozen=True)
class Candidate:
    """One config. keywords: what the operator is called with. config: as the user wrote it."""

    label: str
    keywords: Mapping[str, Any]
    config: Any


def candidates_of(what: str, configs: Sequence[Any], parameters: Mapping[str, inspect.Parameter]) -> list[Candidate]:
    """The candidates that ``configs`` mean for a function with these parameters. Raises InvalidArgumentError."""
    if isinstance(configs, (str, Mapping)) or not isinstance(configs, Sequence) or not configs:
        raise InvalidArgumentError(f"{what}: configs={configs!r} must be a sequence of at least one config, or a function that gives one")
    candidates = [_candidate(what, config, parameters) for config in configs]
    labels = [candidate.label for candidate in candidates]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise InvalidArgumentError(f"{what}: the config {twice[0]!r} is there twice; leave one of them out")
    names = set(candidates[0].keywords)
    for candidate in candidates:
        if set(candidate.keywords) != names:
            raise InvalidArgumentError(
                f"{what}: the config {candidate.label!r} sets {sorted(candidate.keywords)}, the first one {sorted(names)}; "
                "every config has to set the same parameters"
            )
    return candidates


class Given:
    """Which of some parameters a call gives, by name or by position: cheap, as it is asked at every call."""

    def __init__(self, what: str, signature: inspect.Signature) -> None:
        self._what = what
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        self._takes_any = inspect.Parameter.VAR_POSITIONAL in kinds
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._places = {name: place for place, (name, kind) in enumerate(zip(signature.parameters, kinds, strict=True)) if kind in by_place}

    def of(self, names: Iterable[str], args: tuple, kwargs: Mapping[str, Any]) -> list[str]:
        """Those of ``names`` that are given. Raises InvalidArgumentError where there are more arguments than places for them."""
        count = len(args)
        if count > len(self._places) and not self._takes_any:
            raise InvalidArgumentError(f"{self._what} takes {len(self._places)} arguments by position, not {count}")
        return [name for name in names if name in kwargs or self._places.get(name, count) < count]


def _candidate(what: str, config: Any, parameters: Mapping[str, inspect.Parameter]) -> Candidate:
    if isinstance(config, triton.Config):
        if config.pre_hook is not None:
            raise InvalidArgumentError(f"{what}: a config with a pre_hook is one of a kernel; for an operator give reset= to autotune")
        keywords = dict(config.kwargs)
        keywords |= {name: getattr(config, name) for name in _OF_TRITON if name in parameters}
    elif isinstance(config, Mapping):
        keywords = dict(config)
    else:
        raise InvalidArgumentError(f"{what}: the config {config!r} must be a dict of keyword arguments, or a triton.Config")
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [name for name in keywords if not isinstance(name, str) or name not in parameters and not takes_any]
    if unknown or not keywords:
        raise InvalidArgumentError(
            f"{what}: the config {config!r} sets {unknown or 'nothing'}; {what} has the parameters {', '.join(parameters)}"
        )
    return Candidate(", ".join(f"{name}={_shown(what, name, keywords[name])}" for name in sorted(keywords)), keywords, config)


def _shown(what: str, name: str, value: Any) -> str:
    """A value in a label, which has to be the same on all ranks and in other processes."""
    if isinstance(value, triton.Config):
        return f"({value})"
    shown = repr(value)
    if " at 0x" in shown:
        raise InvalidArgumentError(
            f"{what}: the config's {name}={shown} has no text of its own; give a number, a text, a triton.Config or a dataclass, "
            "or a class with a __repr__"
        )
    return shown
