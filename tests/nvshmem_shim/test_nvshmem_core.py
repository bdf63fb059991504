"""``nvshmem.core`` on simulated ranks."""

import sys
import types

import pytest
import torch

from triton_dist import nvshmem_shim, utils
from triton_dist.errors import InvalidArgumentError, NotSymmetricError, UnreachablePeerError, UnsupportedOperationError
from triton_dist.nvshmem_shim import bindings, core
from triton_dist.sim.simulate import simulate


def test_installing_leaves_another_nvshmem_alone(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "nvshmem"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nvshmem", types.ModuleType("nvshmem"))
    assert not nvshmem_shim.install()
    assert nvshmem_shim.install(replace=True)
    import nvshmem.bindings.nvshmem
    import nvshmem.core

    assert nvshmem.core is core and nvshmem.bindings.nvshmem is nvshmem.bindings is bindings
    nvshmem_shim.uninstall()
    assert "nvshmem" not in sys.modules and "nvshmem.core" not in sys.modules
    nvshmem_shim.uninstall()


def test_every_public_name_is_there():
    for module in (core, bindings):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_beginning_and_end():
    def fn():
        assert core.init_status() == core.InitStatus.STATUS_NOT_INITIALIZED
        uid = core.get_unique_id(empty=core.my_pe() != 0)
        core.init(device=None, uid=uid, rank=core.my_pe(), nranks=2, initializer_method="uid")
        assert core.init_status() == core.InitStatus.STATUS_IS_INITIALIZED and core.n_pes() == 2
        for wrong in ({"nranks": 3}, {"rank": 5}):
            with pytest.raises(InvalidArgumentError, match="symmetric memory spans all ranks"):
                core.init(**wrong)
        core.finalize()
        core.finalize()
        assert not utils.is_shmem_initialized()
        return core.get_version().libnvshmem_version

    assert simulate(fn, 2) == ["triton_dist"] * 2


@pytest.mark.parametrize("world_size, nodes", [(1, 1), (2, 1), (4, 2)])
@pytest.mark.parametrize("seed", [0, 1])
def test_puts_gets_and_signals(world_size, nodes, seed):
    def fn():
        rank, after = core.my_pe(), (core.my_pe() + 1) % core.n_pes()
        inbox, outbox, signal = core.tensor((5,), torch.int32), core.tensor((5,), torch.int32), core.tensor((1,), torch.int64)
        outbox.fill_(rank), signal.zero_(), inbox.zero_()
        core.barrier_all()
        core.put_signal(
            inbox, torch.full((5,), 10 + rank, dtype=torch.int32), core.tensor_get_buffer(signal)[0], 3, core.SignalOp.SIGNAL_SET, after
        )
        core.signal_wait(signal, 3, core.ComparisonType.CMP_GE)  # it may be 7 already
        mine = torch.zeros(5, dtype=torch.int32)
        core.get(mine, outbox, after)
        core.signal_op(signal, 4, core.SignalOp.SIGNAL_ADD, after)
        core.signal_wait(signal, 7, core.ComparisonType.CMP_GE)
        core.quiet()
        core.barrier(core.Teams.TEAM_WORLD)
        bindings.putmem_signal_on_stream(outbox.data_ptr(), mine.data_ptr(), 20, signal.data_ptr(), 9, core.SignalOp.SIGNAL_SET, after, 0)
        core.signal_wait(signal, 9, core.ComparisonType.CMP_EQ)
        copied = torch.zeros(5, dtype=torch.int32)
        bindings.getmem_on_stream(copied.data_ptr(), outbox.data_ptr(), 20, rank, 0)
        core.barrier_all()
        return inbox.tolist(), mine.tolist(), copied.tolist(), signal.item()

    for rank, (inbox, mine, copied, signal) in enumerate(simulate(fn, world_size, num_nodes=nodes, seed=seed)):
        before, after = (rank - 1) % world_size, (rank + 1) % world_size
        assert inbox == [10 + before] * 5 and mine == [after] * 5 and copied == [(before + 1) % world_size] * 5 and signal == 9


def test_memory():
    def fn():
        tensor, raw = core.bytetensor((3, 2), torch.float32), core.buffer(64)
        assert (tensor.shape, tensor.dtype, raw.size) == ((24,), torch.uint8, 64)
        peer = 1 - core.my_pe()
        assert core.get_peer_buffer(raw, peer).handle == bindings.ptr(raw.handle, peer) != raw.handle
        assert core.get_peer_tensor(tensor).data_ptr() == tensor.data_ptr() == core.tensor_get_buffer(tensor)[0].handle
        address = bindings.malloc(100)
        bindings.free(address)
        with pytest.raises(InvalidArgumentError, match="malloc did not give"):
            bindings.free(address)
        core.free(raw), core.free_tensor(tensor)

    simulate(fn, 2)


def test_teams():
    def fn():
        rank = core.my_pe()
        row, column = core.team_split_2d(core.Teams.TEAM_WORLD, 3, core.TeamConfig(), 0, core.TeamConfig(), 0)
        assert (core.team_my_pe(row), core.team_n_pes(row)) == (rank % 3, 3) and (core.team_my_pe(column), core.team_n_pes(column)) == (
            rank // 3,
            2,
        )
        assert core.team_translate_pe(row, 2, 0) == rank // 3 * 3 + 2 and core.team_translate_pe(0, (rank + 3) % 6, row) == -1
        assert core.team_n_pes(core.Teams.TEAM_NODE) == 6
        even = core.team_split_strided(0, 0, 2, 3)
        assert (even == -1) == bool(rank % 2) and core.team_my_pe(even) == (-1 if rank % 2 else rank // 2)
        core.barrier(row)
        core.barrier(column)
        core.team_destroy(column)
        with pytest.raises(InvalidArgumentError, match="has no team"):
            core.team_n_pes(column)
        with pytest.raises(InvalidArgumentError, match="not one that this rank split off"):
            core.team_destroy(core.Teams.TEAM_WORLD)
        return int(row)

    assert len(set(simulate(fn, 6))) == 1


@pytest.mark.parametrize(
    "use, error, said",
    [
        (lambda x: core.put(torch.zeros(2), torch.zeros(2), 0), NotSymmetricError, "allocate it by nvshmem.core.tensor"),
        (lambda x: core.put(x, torch.zeros(3), 0), InvalidArgumentError, "of equal size, not 8 and 12 bytes"),
        (lambda x: core.put(x, torch.zeros(4)[::2], 0), InvalidArgumentError, "contiguous"),
        (lambda x: core.get(torch.zeros(2), x, 2), InvalidArgumentError, "there is no rank 2"),
        (lambda x: core.signal_op(core.tensor((1,), torch.int64), 1, 4, 0), InvalidArgumentError, "neither SIGNAL_SET"),
        (lambda x: core.team_my_pe(9), InvalidArgumentError, "has no team 9"),
        (lambda x: core.team_split_2d(0, 3), InvalidArgumentError, "xrange=3"),
        (lambda x: core.team_split_strided(0, 1, 1, 2), InvalidArgumentError, "does not name 2 ranks"),
        (lambda x: core.tensor((2,), torch.float32, morder="F"), UnsupportedOperationError, "row-major"),
        (lambda x: core.get_multicast_tensor(0, x), UnsupportedOperationError, "no multicast memory"),
        (lambda x: core.get_peer_tensor(x, 1 - core.my_pe()), UnreachablePeerError, "use a put or a signal"),
        (lambda x: core.barrier(stream="slow"), InvalidArgumentError, "'slow' is not a CUDA stream"),
    ],
)
def test_mistakes_are_named(use, error, said):
    with pytest.raises(error, match=said):
        simulate(lambda: use(core.tensor((2,), torch.float32)), 2, num_nodes=2)
