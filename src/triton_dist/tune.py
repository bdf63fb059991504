"""Triton-distributed's decorator for operators, by its own name and arguments; see ``triton_dist.autotune`` for what it does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from .errors import InvalidArgumentError
from .tools.autotune import TunedOperator
from .tools.autotune import autotune as autotune_operator
from .tools.autotune.candidates import Given

_OF_CALLS = ("autotune_verbose", "autotune_pg", "autotune_allow_arg_overwrite")


def autotune(
    config_space: Sequence[Mapping[str, Any]], key_fn: Callable[..., Hashable], prune_fn: Callable[..., bool] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: as ``triton_dist.autotune(config_space, key=key_fn)``, where ``prune_fn(config, *args, **kwargs)`` says which to try.

    Calls take ``autotune``: True, the default, to choose by trying; False to use the defaults that the operator has for what is tuned.
    Where it has none that is an InvalidArgumentError: the first config is not taken for want of a choice. Other arguments of calls that
    Triton-distributed has (autotune_verbose, autotune_pg, autotune_allow_arg_overwrite) are accepted and change nothing.
    The result has the ``TunedOperator`` as attribute ``tuned``.
    """

    if isinstance(config_space, (str, Mapping)) or not isinstance(config_space, Sequence) or not config_space:
        raise InvalidArgumentError(f"autotune: config_space={config_space!r} must be a sequence of at least one dict")
    if not callable(key_fn) or prune_fn is not None and not callable(prune_fn):
        raise InvalidArgumentError(f"autotune: key_fn={key_fn!r} and prune_fn={prune_fn!r} must be functions; prune_fn may be None")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)
        parameters = signature.parameters
        names = {name for config in config_space for name in config}
        places = Given(function.__qualname__, signature)

        def configs(*args: Any, **kwargs: Any) -> list[Mapping[str, Any]]:
            return [config for config in config_space if prune_fn is None or prune_fn(config, *args, **kwargs)]

        tuned: TunedOperator = autotune_operator(configs, key_fn)(function)

        @functools.wraps(function)
        def call(*args: Any, autotune: bool = True, **kwargs: Any) -> Any:
            for name in _OF_CALLS:
                kwargs.pop(name, None)
            if "autotune" in parameters:
                kwargs["autotune"] = autotune
            given = places.of(names, args, kwargs)
            if autotune and not given:
                return tuned(*args, **kwargs)
            missing = sorted(
                name for name in names.difference(given) if name not in parameters or parameters[name].default is inspect.Parameter.empty
            )
            if missing:
                why = f"{', '.join(sorted(given))} is given" if given else "autotune=False"
                raise InvalidArgumentError(
                    f"{function.__qualname__}: {why}, but {', '.join(missing)} has no default; give it, or leave all of them to be tuned"
                )
            return function(*args, **kwargs)

        call.tuned = tuned  # type: ignore[attr-defined]
        return call

    return decorate
