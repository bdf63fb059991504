"""Doing something that may fail on every rank of a set: all go on, or all raise the same kind of error and nobody waits in vain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import TritonDistError

Gather = Callable[[Any], Sequence[Any]]
"""All-gather of Python objects among the ranks of a set: takes this rank's, returns everyone's in the order of the set."""


def agreed(gather: Gather, ranks: Sequence[int], what: str, act: Callable[[], Any]) -> list[Any]:
    """Run ``act`` on each of ``ranks`` and return what it returned there, in the order of ``ranks``. All of them call it.

    If it fails somewhere, every rank raises an error of the class that the first failing rank had, with all ranks' reasons.
    ``act`` does not talk to other ranks, unless what it waits for there is bounded.
    """
    outcome: tuple[Any, tuple[type[TritonDistError], str] | None]
    cause: Exception | None = None
    try:
        outcome = act(), None
    except TritonDistError as error:
        outcome, cause = (None, (type(error), str(error))), error
    except Exception as error:  # noqa: BLE001 - the other ranks must hear of it, whatever it is
        outcome, cause = (None, (TritonDistError, f"{type(error).__name__}: {error}")), error
    outcomes = gather(outcome)
    raise_first([failure for _, failure in outcomes], ranks, what, cause)
    return [value for value, _ in outcomes]


def raise_first(
    failures: Sequence[tuple[type[TritonDistError], str] | None], ranks: Sequence[int], what: str, cause: Exception | None = None
) -> None:
    """Raise the error of the first rank that failed, naming each rank that did and why; nothing if none did.

    failures: error class and text, or None, by rank.
    """
    failed = [(rank, failure) for rank, failure in zip(ranks, failures, strict=True) if failure is not None]
    if not failed:
        return
    texts = {text for _, (_, text) in failed}
    if len(texts) == 1 and len(failed) == len(ranks):
        reasons = f"{what}: {texts.pop()}"
    else:
        reasons = f"{what}: " + "; ".join(f"rank {rank}: {text}" for rank, (_, text) in failed)
    raise failed[0][1][0](reasons) from cause
