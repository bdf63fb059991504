"""Steps that all ranks take or none: what is raised where, from the outcomes of all."""

from __future__ import annotations

import pytest

from triton_dist.errors import AddressInUseError, HeapFullError, TritonDistError
from triton_dist.runtime.agreement import agreed, raise_first


def with_others(*others):
    """A gather in which the other ranks, 1 and up, have these outcomes."""
    return lambda own: [own, *others]


def test_all_succeed():
    assert agreed(with_others(("b", None), (None, None)), (0, 4, 7), "trying", lambda: "a") == ["a", "b", None]


def test_the_first_failure_decides_the_class():
    def fails():
        raise HeapFullError("too small")

    gather = with_others((None, (AddressInUseError, "taken by a library")), ("fine", None))
    with pytest.raises(HeapFullError, match="^trying: rank 0: too small; rank 4: taken by a library$") as caught:
        agreed(gather, (0, 4, 7), "trying", fails)
    assert isinstance(caught.value.__cause__, HeapFullError)
    with pytest.raises(AddressInUseError, match="^trying: rank 4: taken by a library$"):
        agreed(gather, (0, 4, 7), "trying", lambda: None)


def test_what_is_not_ours_is_told_to_the_others():
    said = []

    def gather(own):
        said.append(own)
        return [own]

    def fails():
        raise FileNotFoundError("no socket")

    with pytest.raises(TritonDistError, match="trying: FileNotFoundError: no socket"):
        agreed(gather, (0,), "trying", fails)
    assert said == [(None, (TritonDistError, "FileNotFoundError: no socket"))]
    with pytest.raises(KeyboardInterrupt):
        agreed(gather, (0,), "trying", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert len(said) == 1, "an interrupt is nobody else's business"


def test_what_all_ranks_say_is_said_once():
    with pytest.raises(HeapFullError, match="^asking: too much$"):
        raise_first([(HeapFullError, "too much")] * 3, (0, 1, 2), "asking")
    raise_first([None, None], (0, 1), "asking")
