"""Kernels and host functions by the paths under which scripts for Triton-distributed import them."""

import pytest
import torch

import triton_dist
from triton_dist.errors import InvalidArgumentError, UnsupportedOperationError
from triton_dist.kernels.allreduce import AllReduceMethod, get_allreduce_methods, to_allreduce_method
from triton_dist.kernels.common_ops import set_signal, wait_eq
from triton_dist.kernels.nvidia.allreduce import all_reduce, create_allreduce_ctx
from triton_dist.kernels.nvidia.common_ops import BarrierAllContext, barrier_all_intra_node_atomic_cas_block, barrier_all_on_stream
from triton_dist.kernels.nvidia.reduce_scatter import ring_reduce
from triton_dist.sim.simulate import simulate


@pytest.mark.parametrize("world_size, nodes", [(1, 1), (2, 1), (3, 1), (4, 2), (8, 1)])
@pytest.mark.parametrize("intra_node", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_barriers_order_what_peers_wrote(world_size, nodes, intra_node, seed):
    def fn():
        context = BarrierAllContext(intra_node)
        first = triton_dist.rank() // context.num_local_ranks * context.num_local_ranks
        inbox = triton_dist.symm_zeros((context.num_local_ranks,), torch.int32)
        seen = []
        for step in range(4):
            for local in range(context.num_local_ranks):
                triton_dist.symm_peer(inbox, first + local)[context.local_rank] = 10 * step + context.local_rank
            barrier_all_on_stream(context)
            seen.append(inbox.tolist())
            barrier_all_on_stream(context, triton_dist.current_stream())
        context.finalize()
        return seen

    local = world_size // nodes
    for seen in simulate(fn, world_size, num_nodes=nodes, seed=seed):
        assert seen == [[10 * step + peer for peer in range(local)] for step in range(4)]


def test_the_flags_are_zero_behind_the_barrier():
    def fn():
        flags = triton_dist.symm_zeros((3,), torch.int32)
        barrier_all_intra_node_atomic_cas_block[(1,)](triton_dist.rank(), triton_dist.rank(), 3, flags)
        barrier_all_on_stream(None)
        return flags.tolist()

    assert simulate(fn, 3) == [[0, 0, 0]] * 3


@pytest.mark.parametrize("wide", [False, True])
def test_signals_by_address(wide):
    def fn():
        word = torch.zeros(1, dtype=torch.int64 if wide else torch.int32)
        out, side = torch.zeros(1), triton_dist.Stream()
        with side:
            wait_eq(word.data_ptr(), 5, None, wide)
            out.fill_(1)
        set_signal(word.data_ptr(), 5, triton_dist.current_stream().handle, wide)
        side.synchronize()
        return out.item(), word.item()

    assert simulate(fn, 1) == [(1, 5)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("splits, shape, num_sms", [(1, (3, 5), -1), (3, (100, 130), -1), (4, (70, 256), 2)])
def test_sum_of_the_parts(dtype, splits, shape, num_sms):
    parts = torch.randn(splits * shape[0], shape[1], generator=torch.Generator().manual_seed(0)).to(dtype)
    out = torch.empty(shape, dtype=dtype)
    assert ring_reduce(parts, out, 1, splits, num_sms) is out
    expected = parts.view(splits, *shape).double().sum(0)
    torch.testing.assert_close(out.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize(
    "parts, out, splits, num_sms",
    [((6, 4), (3, 4), 3, -1), ((6, 4), (3, 5), 2, -1), ((6,), (3,), 2, -1), ((6, 4), (3, 4), 2, 0), ((0, 4), (3, 4), 0, -1)],
)
def test_shapes_that_do_not_fit(parts, out, splits, num_sms):
    with pytest.raises(InvalidArgumentError, match="ring_reduce"):
        ring_reduce(torch.zeros(parts), torch.zeros(out), 0, splits, num_sms)
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        ring_reduce(torch.zeros(4, 6).t(), torch.zeros(3, 4), 0, 2)


@pytest.mark.parametrize("method", [*(to_allreduce_method(name) for name in get_allreduce_methods()), None])
@pytest.mark.parametrize("world_size", [2, 3])
def test_all_reduce_by_every_method(method, world_size):
    def fn():
        ctx = create_allreduce_ctx(4096, triton_dist.rank(), triton_dist.world_size(), triton_dist.world_size())
        x = torch.arange(100, dtype=torch.float32) * (triton_dist.rank() + 1)
        given = torch.empty_like(x)
        assert all_reduce(x, method, ctx, output=given, straggler_option=(1, 1000)) is given
        ctx.finalize()
        return given.tolist(), all_reduce(x, method, ctx).tolist()

    expected = [number * sum(range(1, world_size + 1)) for number in range(100)]
    assert simulate(fn, world_size) == [(expected, expected)] * world_size


def small(count, method):
    return all_reduce(torch.ones(count), method, create_allreduce_ctx(64, 0, 2, 2))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: small(3, AllReduceMethod.OneShot_LL), UnsupportedOperationError, "OneShot_LL"),
        (lambda: small(300, AllReduceMethod.OneShot), InvalidArgumentError, "1200 bytes"),
        (lambda: create_allreduce_ctx(64, 0, 4, 2), InvalidArgumentError, "one host"),
        (lambda: to_allreduce_method("ring"), ValueError, "double_tree"),
    ],
)  # fmt: skip
def test_bad_all_reduces_are_named(make, error, message):
    with pytest.raises(error, match=message):
        simulate(make, 2)
