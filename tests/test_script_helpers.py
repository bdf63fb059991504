"""Small helpers that scripts import from ``triton_dist.utils``."""

import enum

import pytest
import torch

import triton_dist
from triton_dist import utils
from triton_dist.errors import InvalidArgumentError, MissingCapabilityError, NotInitializedError
from triton_dist.sim.simulate import simulate


class CUresult(enum.IntEnum):
    """As cuda-bindings has it."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


def test_cuda_check_takes_codes_and_tuples_that_begin_with_one():
    utils.CUDA_CHECK(CUresult.CUDA_SUCCESS)
    utils.CUDA_CHECK((CUresult.CUDA_SUCCESS, 3))
    utils.CUDA_CHECK(utils.cuda.CUresult.CUDA_SUCCESS)
    utils.CUDA_CHECK(utils.cudart.cudaError_t.cudaSuccess)
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        utils.CUDA_CHECK((CUresult.CUDA_ERROR_INVALID_VALUE,))
    with pytest.raises(InvalidArgumentError, match="not 0"):
        utils.CUDA_CHECK(0)


def test_unknown_names_of_utils_are_unknown():
    with pytest.raises(AttributeError, match="no attribute 'cudnn'"):
        utils.cudnn  # noqa: B018


def test_sleep_async_takes_simulated_time():
    def fn():
        begin, end = triton_dist.Event(), triton_dist.Event()
        begin.record()
        utils.sleep_async(250)
        end.record()
        end.synchronize()
        with pytest.raises(InvalidArgumentError, match="negative"):
            utils.sleep_async(-1)
        return begin.elapsed_time(end)

    assert all(250 <= milliseconds < 251 for milliseconds in simulate(fn, 2))


def test_generate_data_makes_fresh_tensors_for_ever():
    sizes = iter(range(2, 100))
    configs = [
        ((3, lambda: next(sizes)), torch.float16, (0.5, 2)),
        None,
        (4, torch.int8, (3, 10), "cpu"),
        (lambda: (2, 2), torch.float8_e4m3fn, (1, 0)),
    ]

    def fn():
        made = utils.generate_data(configs)
        for columns in (2, 3):
            floats, nothing, integers, eights = next(made)
            assert floats.shape == (3, columns) and floats.dtype == torch.float16
            assert floats.min() >= 1.5 and floats.max() <= 2.5
            assert nothing is None
            assert integers.dtype == torch.int8 and integers.min() >= 7 and integers.max() < 13
            assert eights.shape == (2, 2) and utils.is_fp8_dtype(eights.dtype)
        with pytest.raises(InvalidArgumentError, match="torch.bool"):
            next(next(utils.generate_data([((1,), torch.bool, (1, 0))])))

    simulate(fn, 1)


def test_requires_names_what_is_missing():
    def has_wings():
        return False

    @utils.requires(has_wings)
    def fly():
        raise AssertionError("called all the same")

    with pytest.raises(MissingCapabilityError, match=r"fly needs has_wings\(\)"):
        fly()
    assert utils.requires(lambda: True)(lambda value: value)(3) == 3
    assert simulate(lambda: utils.requires_p2p_native_atomic(lambda: "called")(), 1) == ["called"]


def test_torch_is_deterministic_inside_only():
    before = torch.are_deterministic_algorithms_enabled()
    with pytest.raises(ZeroDivisionError), utils.with_torch_deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        raise ZeroDivisionError
    assert torch.are_deterministic_algorithms_enabled() == before


def test_constants_of_the_launch():
    assert utils.support_launch_cooperative_grid() and utils.launch_cooperative_grid_options() == {"launch_cooperative_grid": True}
    assert not utils.has_nvshmemi_bc_built()


def test_waiting_for_the_clock(monkeypatch):
    assert utils.wait_until_max_gpu_clock_or_warning()
    monkeypatch.setenv("TRITON_DIST_WAIT_GPU_CLOCK", "1")
    assert simulate(utils.wait_until_max_gpu_clock_or_warning, 1) == [True]


def test_the_world_of_symmetric_memory():
    def fn():
        with pytest.raises(NotInitializedError, match="get_triton_dist_world"):
            utils.get_triton_dist_world()
        group = utils.initialize_distributed()
        assert utils.get_triton_dist_world() is group and utils.get_triton_dist_local_world_size() == 2
        assert utils.cuda_occupancy_max_activate_blocks_per_multiprocessor(None, 4) == 1

    simulate(fn, 4, num_nodes=2)
