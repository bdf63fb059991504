"""The documented names of triton_dist.utils."""

import inspect
import random
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist

from triton_dist import utils
from triton_dist.errors import DeadlockError, InvalidArgumentError, NoDeviceError, NotInitializedError
from triton_dist.runtime import streams, symmetric, world
from triton_dist.sim.simulate import simulate

WORLD_SIZES = (1, 2, 3, 4, 8)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_initialize_and_finalize(world_size):
    def fn():
        assert not utils.is_shmem_initialized()
        group = utils.initialize_distributed()
        assert utils.is_shmem_initialized()
        assert (group.rank(), group.size()) == (world.rank(), world.world_size())
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
        utils.finalize_distributed()
        assert not utils.is_shmem_initialized()
        assert not dist.is_initialized()
        return total.item()

    assert simulate(fn, world_size) == [float(world_size)] * world_size


def test_without_shmem():
    def fn():
        utils.initialize_distributed(initialize_shmem=False)
        assert not utils.is_shmem_initialized()
        utils.nvshmem_create_tensor((2,), torch.float32)

    with pytest.raises(NotInitializedError, match="initialize_distributed"):
        simulate(fn, 2)


def test_shmem_by_group():
    def fn():
        dist.init_process_group("gloo")
        utils.init_nvshmem_by_torch_process_group(dist.group.WORLD)
        assert utils.is_shmem_initialized()
        utils.init_nvshmem_by_torch_process_group(dist.new_group([world.rank()], use_local_synchronization=True))

    with pytest.raises(InvalidArgumentError, match="has 1 ranks but the world has 2"):
        simulate(fn, 2)


def test_seeds():
    def fn(seed):
        utils.initialize_distributed(seed)
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    by_rank = simulate(fn, 3, args=(None,))
    assert len(set(by_rank)) == 3
    assert by_rank[1] == simulate(fn, 2, args=(1,))[0]
    assert len(set(simulate(fn, 3, args=(9,)))) == 1


def test_create_and_free_tensors():
    def fn():
        utils.initialize_distributed()
        rank, local = world.rank(), world.local_world_size()
        tensor = utils.nvshmem_create_tensor((2, 3), torch.float8_e5m2)
        assert (tensor.shape, tensor.dtype) == ((2, 3), torch.float8_e5m2)
        peers = utils.nvshmem_create_tensors((local,), torch.int32, rank, local)
        assert len(peers) == local
        for peer in peers:
            peer[world.local_rank()] = rank
        utils.nvshmem_barrier_all_on_stream()
        values = peers[world.local_rank()].tolist()
        utils.nvshmem_free_tensor_sync(tensor)
        utils.nvshmem_free_tensor_sync(peers[world.local_rank()])
        assert not symmetric.is_symmetric(tensor)
        return values

    assert simulate(fn, 4, num_nodes=2) == [[0, 1], [0, 1], [2, 3], [2, 3]]


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_barrier_on_stream_orders_the_ranks(world_size, seed):
    """Each round every rank writes to all, and after the barrier reads what all wrote; the host never waits in between."""

    def fn():
        utils.initialize_distributed()
        rank, size = world.rank(), world.world_size()
        board = symmetric.symm_zeros(size, torch.int64)
        seen = []
        side = streams.Stream()
        for turn in range(1, 4):
            with streams.stream(side):
                for peer in range(size):
                    symmetric.symm_peer(board, peer)[rank] = turn
            utils.nvshmem_barrier_all_on_stream(side)
            with streams.stream(side):
                seen.append(board.clone())
            utils.nvshmem_barrier_all_on_stream(side)
        side.synchronize()
        return [row.tolist() for row in seen]

    assert simulate(fn, world_size, seed=seed) == [[[turn] * world_size for turn in range(1, 4)]] * world_size


def test_barrier_on_stream_does_not_block_the_host():
    def fn():
        utils.initialize_distributed()
        if world.rank() == 0:
            utils.nvshmem_barrier_all_on_stream()
            dist.barrier(async_op=True)
        else:
            dist.barrier(async_op=True)
            utils.nvshmem_barrier_all_on_stream()
        streams.synchronize()

    simulate(fn, 2)


def test_rank_that_misses_the_stream_barrier_is_named():
    def fn():
        utils.initialize_distributed()
        if world.rank() != 1:
            utils.nvshmem_barrier_all_on_stream()
            streams.synchronize()

    with pytest.raises(DeadlockError, match=r"waits for barrier_all\[1\] of rank 0 >= 1; it is 0; nobody wrote it"):
        simulate(fn, 3)


def test_dist_print(capsys):
    def fn(**options):
        utils.initialize_distributed()
        utils.dist_print("hello", world.rank(), **options)

    simulate(fn, 3)
    assert capsys.readouterr().out == "hello 0\n"
    simulate(fn, 3, kwargs={"allowed_ranks": [1], "prefix": True, "end": "!\n"})
    assert capsys.readouterr().out == "[rank:1] hello 1!\n"
    for seed in range(3):
        simulate(fn, 3, kwargs={"allowed_ranks": "all", "need_sync": True}, seed=seed)
        assert capsys.readouterr().out == "hello 0\nhello 1\nhello 2\n"
    with pytest.raises(InvalidArgumentError, match='or "all"'):
        simulate(fn, 1, kwargs={"allowed_ranks": "some"})


def test_rand_tensor():
    def fn():
        tensors = {dtype: utils.rand_tensor((50, 3), dtype) for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn)}
        tensors |= {dtype: utils.rand_tensor((50,), dtype, "cuda:0") for dtype in (torch.int8, torch.uint8, torch.int64, torch.bool)}
        return tensors

    for dtype, tensor in simulate(fn, 1)[0].items():
        assert tensor.dtype == dtype
        if dtype.is_floating_point:
            assert tensor.shape == (50, 3)
            assert tensor.float().abs().max() <= 1
            assert tensor.float().min() < 0 < tensor.float().max()
    assert utils.rand_tensor((2,), torch.float32, device="cpu").shape == (2,)


@pytest.mark.parametrize(("gpu", "tma"), [("a100", False), ("h100", True), ("b200", True)])
def test_platform(gpu, tma):
    def fn():
        assert utils.is_cuda()
        assert not utils.is_hip()
        assert utils.has_fullmesh_nvlink()
        assert utils.supports_p2p_native_atomic()
        assert utils.is_nvshmem_multimem_supported() == tma
        return utils.has_tma(), utils.get_device_max_shared_memory_size(0) > 100_000

    assert simulate(fn, 1, gpu=gpu) == [(tma, True)]


def test_platform_without_a_gpu():
    if not torch.cuda.is_available():
        assert (utils.is_cuda(), utils.is_hip(), utils.has_tma(), utils.is_shmem_initialized()) == (False, False, False, False)


def test_environment_helpers(monkeypatch):
    for text, value in {"1": True, "ON": True, "yes": True, "0": False, "False": False, "": False}.items():
        monkeypatch.setenv("TRITON_DIST_TEST", text)
        assert utils.get_bool_env("TRITON_DIST_TEST", not value) is value
    for text, number in {"12": 12, "-3": -3, "0x10": 16, "": 7}.items():
        monkeypatch.setenv("TRITON_DIST_TEST", text)
        assert utils.get_int_env("TRITON_DIST_TEST", 7) == number
    monkeypatch.setenv("TRITON_DIST_TEST", "maybe")
    with pytest.raises(InvalidArgumentError, match="TRITON_DIST_TEST='maybe'"):
        utils.get_bool_env("TRITON_DIST_TEST", False)
    with pytest.raises(InvalidArgumentError, match="TRITON_DIST_TEST='maybe'"):
        utils.get_int_env("TRITON_DIST_TEST", 0)
    monkeypatch.delenv("TRITON_DIST_TEST")
    assert utils.get_bool_env("TRITON_DIST_TEST", True) is True
    assert utils.get_int_env("TRITON_DIST_TEST", 5) == 5


def test_signatures_are_the_documented_ones():
    assert torch.int64 == utils.NVSHMEM_SIGNAL_DTYPE
    documented = {
        "initialize_distributed": ["seed", "initialize_shmem"],
        "nvshmem_create_tensor": ["shape", "dtype"],
        "nvshmem_create_tensors": ["shape", "dtype", "rank", "local_world_size"],
        "nvshmem_free_tensor_sync": ["tensor"],
        "nvshmem_barrier_all_on_stream": ["stream"],
        "dist_print": ["args", "allowed_ranks", "prefix", "need_sync", "kwargs"],
        "rand_tensor": ["shape", "dtype", "device"],
        "init_seed": ["seed"],
        "get_bool_env": ["env", "default_value"],
        "get_int_env": ["env", "default_value"],
        "init_nvshmem_by_torch_process_group": ["pg"],
        "get_device_max_shared_memory_size": ["device_id"],
    }
    for name, parameters in documented.items():
        assert list(inspect.signature(getattr(utils, name)).parameters) == parameters


def test_import_does_no_work():
    """Importing the utils starts no process group, maps nothing, and loads neither Triton nor the simulator."""
    unwanted = ("triton", "triton_dist.sim.machine", "torch.distributed.tensor")
    code = f"import sys, triton_dist.utils; print([name for name in {unwanted} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_initialize_takes_a_process_group_that_is_there():
    def fn():
        dist.init_process_group("gloo")
        group = utils.initialize_distributed(seed=3)
        same = (group.size(), torch.initial_seed()) == (2, 3)
        dist.destroy_process_group()
        utils.finalize_distributed()  # symmetric memory is left, though torch.distributed was before
        return same, utils.is_shmem_initialized()

    assert simulate(fn, 2) == [(True, False)] * 2


@pytest.mark.parametrize(("gpu", "has_tma"), [("a100", False), ("h100", True), ("b200", True)])
def test_tma_is_the_pretended_gpus(gpu, has_tma):
    assert simulate(utils.has_tma, 1, gpu=gpu) == [has_tma]
    assert utils.has_tma() == (torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0))


@pytest.mark.parametrize("world_size, nodes", [(1, 1), (2, 1), (4, 2)])
def test_tensors_of_peers_are_made_for_the_caller_only(world_size, nodes):
    def fn():
        utils.initialize_distributed()
        rank, local = world.rank(), world.local_world_size()
        for wrong in ({*range(-1, world_size + 1)} - {rank}) | {None, str(rank)}:
            with pytest.raises(InvalidArgumentError, match=rf"nvshmem_create_tensors: rank={wrong!r}, but here it is {rank}"):
                utils.nvshmem_create_tensors((2,), torch.int32, wrong, local)
        for wrong in ({0, -1, world_size + 1, 3} - {local}) | {None, str(local)}:
            with pytest.raises(InvalidArgumentError, match=rf"local_world_size={wrong!r}, but here it is {local}"):
                utils.nvshmem_create_tensors((2,), torch.int32, rank, wrong)
        assert len(utils.nvshmem_create_tensors((2,), torch.int32, rank, local)) == local

    simulate(fn, world_size, num_nodes=nodes)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, "float32", None, float])
def test_dtypes_that_are_not_random(dtype):
    with pytest.raises(InvalidArgumentError, match="rand_tensor: dtype="):
        utils.rand_tensor((2,), dtype, device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_random_numbers_on_no_gpu(device):
    with pytest.raises(NoDeviceError, match="rand_tensor on 'cuda.*pass device='cpu'"):
        utils.rand_tensor((2,), torch.float32, device)


@pytest.mark.parametrize("group", [None, 0, "world", dist.GroupMember.NON_GROUP_MEMBER])
def test_what_is_no_process_group(group):
    with pytest.raises(InvalidArgumentError, match="is not a process group"):
        simulate(lambda: utils.init_nvshmem_by_torch_process_group(group), 1)


@pytest.mark.parametrize("seed", ["a", 1.5, 1 << 64, -(1 << 63) - 1])
def test_what_is_no_seed(seed):
    with pytest.raises(InvalidArgumentError, match="initialize_distributed: seed="):
        simulate(lambda: utils.initialize_distributed(seed=seed), 1)
    with pytest.raises(InvalidArgumentError, match="init_seed: seed="):
        utils.init_seed(seed)


def test_seeds_of_64_bits():
    for seed in (0, -1, -(1 << 63), (1 << 64) - 1, np.int64(3)):
        utils.init_seed(seed)
        first = torch.rand(1), np.random.rand(), random.random()
        utils.init_seed(seed)
        assert first == (torch.rand(1), np.random.rand(), random.random())


@pytest.mark.parametrize("rank", ["0", None, 0.0])
def test_a_peer_is_an_int(rank):
    with pytest.raises(InvalidArgumentError, match=r"symm_peer: rank=.* must be an int"):
        simulate(lambda: symmetric.symm_peer(symmetric.symm_empty((1,), torch.int32), rank), 1)


@pytest.mark.parametrize("wrong", [None, 3, np.zeros(1), [1]], ids=repr)
def test_symmetric_memory_takes_tensors(wrong):
    for use in (symmetric.symm_free, lambda tensor: symmetric.symm_peer(tensor, 0)):
        with pytest.raises(InvalidArgumentError, match="takes a tensor"):
            simulate(lambda use=use: use(wrong), 1)
