"""``triton_dist.tune.autotune``, with Triton-distributed's arguments."""

from __future__ import annotations

import pytest
import torch
import triton

import triton_dist
from triton_dist.errors import AutotuneError, InvalidArgumentError

SPACE = [{"gemm_config": triton.Config({"TILE": tile})} for tile in (16, 32, 64, 128)]


def key(a, **others):
    return a.shape, a.dtype


def fits(config, a, **others):
    return config["gemm_config"].kwargs["TILE"] <= a.numel()


@triton_dist.tune.autotune(config_space=SPACE, key_fn=key, prune_fn=fits)
def operator(a: torch.Tensor, gemm_config: triton.Config = SPACE[3]["gemm_config"], serial: bool = False) -> int:  # noqa: B008
    return gemm_config.kwargs["TILE"]


@triton_dist.tune.autotune(SPACE, lambda a, **others: a.dtype)
def without_default(a: torch.Tensor, gemm_config: triton.Config) -> int:
    return gemm_config.kwargs["TILE"]


def test_it_tunes():
    def body():
        return operator(torch.zeros(40), serial=True, autotune=True, autotune_verbose=True, autotune_pg=None), operator(torch.zeros(40))

    assert set(triton_dist.simulate(body, 2)[0]) <= {16, 32}
    assert len(operator.tuned.report.rows) == 2 and operator.__name__ == "operator"


def test_without_a_choice():
    a = torch.zeros(4)
    assert operator(a, autotune=False) == 128, "the operator's own default, not the first config"
    assert operator(a, gemm_config=SPACE[1]["gemm_config"]) == 32
    with pytest.raises(InvalidArgumentError, match="without_default: autotune=False, but gemm_config has no default"):
        without_default(a, autotune=False)
    assert without_default(a, gemm_config=SPACE[1]["gemm_config"], autotune=False) == 32


def test_nothing_is_left():
    with pytest.raises(AutotuneError, match="at least one config"):
        triton_dist.simulate(lambda: operator(torch.zeros(4)), 2)
