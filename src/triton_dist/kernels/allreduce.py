"""The names of all-reduce methods that programs written for Triton-distributed pass on."""

from __future__ import annotations

from enum import IntEnum

from ..errors import InvalidArgumentError


class AllReduceMethod(IntEnum):
    """Numbers as such programs know them. Which of them run here, and how: ``triton_dist.kernels.nvidia.allreduce``."""

    Unknown = 0
    OneShot = 1
    TwoShot = 2
    DoubleTree = 3
    OneShot_TMA = 4
    OneShot_Multimem = 5
    TwoShot_Multimem = 6
    TwoShot_Multimem_ST = 7
    OneShot_LL = 8
    OneShot_Multimem_LL = 9
    AllReduceEnumMax = 10


_BY_NAME = {
    "double_tree": AllReduceMethod.DoubleTree,
    "one_shot": AllReduceMethod.OneShot,
    "two_shot": AllReduceMethod.TwoShot,
    "one_shot_tma": AllReduceMethod.OneShot_TMA,
    "one_shot_multimem": AllReduceMethod.OneShot_Multimem,
    "two_shot_multimem": AllReduceMethod.TwoShot_Multimem,
    "two_shot_multimem_st": AllReduceMethod.TwoShot_Multimem_ST,
}


def get_allreduce_methods() -> list[str]:
    """The names that ``to_allreduce_method`` knows."""
    return list(_BY_NAME)


def to_allreduce_method(method: str) -> AllReduceMethod:
    """The method of a name. Raises InvalidArgumentError, a ValueError, for another one."""
    if method not in _BY_NAME:
        raise InvalidArgumentError(f"to_allreduce_method({method!r}): it has to be one of {get_allreduce_methods()}")
    return _BY_NAME[method]
