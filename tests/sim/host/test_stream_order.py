"""Torch operators behind queued work: nothing is read or overwritten before its turn, and the host waits only where it must."""

import copy
import gc
import io

import numpy as np
import pytest
import torch

from triton_dist.errors import DeadlockError
from triton_dist.runtime import streams, symmetric, world
from triton_dist.sim import context
from triton_dist.sim.simulate import simulate

pytestmark = pytest.mark.host_code


class Gate:
    """Holds the current stream until ``open``; what is queued after it can't run before."""

    def __init__(self):
        self.word = symmetric.symm_zeros(1, torch.int32, name="gate")
        streams.wait_value(self.word, 1)

    def open(self):
        streams.write_value(self.word, 1, streams.Stream())

    @property
    def closed(self):
        rank = context.current()
        return rank.busy(rank.stream)


def alone(fn, **options):
    """Run ``fn(gate)`` on one simulated rank, behind a closed gate."""
    return simulate(lambda: fn(Gate()), 1, **options)[0]


def test_in_place_operators_wait_their_turn():
    def fn(gate):
        x = torch.zeros(4)
        view = x[1:3]
        x.add_(1)
        view.mul_(10)
        x[:1] = 7
        torch.add(x, 1, out=(out := torch.empty(4)))
        assert gate.closed
        gate.open()
        return x.tolist(), out.tolist()

    assert alone(fn) == ([7.0, 10.0, 10.0, 1.0], [8.0, 11.0, 11.0, 2.0])


@pytest.mark.parametrize("index", [0, (0,), -1])
def test_the_host_waits_to_set_one_element_to_a_number(index):
    """On a GPU that is a copy from the host, behind which torch waits for the stream: a host that opens the gate next never does."""

    def fn(gate):
        gate.word[index] = 1

    with pytest.raises(DeadlockError, match="Tensor.__setitem__ waits for stream"):
        alone(fn)


def test_numbers_in_slices_and_on_the_host_do_not_wait():
    def fn(gate):
        x, table = torch.zeros(2), torch.zeros(2, 2)
        x.add_(1)
        table.add_(1)
        x[:1], table[0] = 7, 7
        host = torch.zeros(2, dtype=torch.int64)
        host[1] = 5
        assert gate.closed
        gate.open()
        return x.tolist(), table.tolist(), host.tolist()

    assert alone(fn) == ([7.0, 1.0], [[7.0, 7.0], [1.0, 1.0]], [0, 5])


def test_functional_operators_wait_their_turn():
    def fn(gate):
        x = torch.zeros(2, 3)
        x.fill_(2)
        y = (x.t() @ x).relu().sum(0)
        values, indices = torch.cat([y, y]).sort()
        half = y.to(torch.float16)
        parts = x.split(1)
        total = parts[0] + parts[1]
        assert gate.closed
        gate.open()
        return y.tolist(), values.tolist(), indices.shape, half.tolist(), total.tolist()

    assert alone(fn) == ([24.0] * 3, [24.0] * 6, (6,), [24.0] * 3, [[4.0] * 3])


@pytest.mark.parametrize("causal", [False, True])
def test_attention_waits_its_turn(causal):
    """torch marks it as random, for dropout, which the CPU's form refuses."""

    def fn(gate):
        q, k, v = torch.zeros(3, 1, 2, 16, 8).unbind()
        v.fill_(1)
        with torch.no_grad():
            result, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
        assert gate.closed
        gate.open()
        return result.eq(1).all().item()

    assert alone(fn)


def test_earlier_values_are_not_overtaken_by_later_ones():
    def fn(gate):
        x = torch.ones(3)
        doubled = x * 2
        x.zero_()
        assert gate.closed
        gate.open()
        return doubled.tolist(), x.tolist()

    assert alone(fn) == ([2.0] * 3, [0.0] * 3)


def test_factories_views_and_random_numbers_do_not_wait():
    def fn(gate):
        torch.manual_seed(5)
        made = torch.rand(2), torch.empty(2).normal_(), torch.zeros(3).bernoulli_(0.5), torch.tensor([1, 2])
        view = made[0].view(2, 1).expand(2, 2)
        assert gate.closed
        torch.manual_seed(6)  # the numbers above were drawn when they were asked for
        gate.open()
        return [tensor.tolist() for tensor in made], view.shape

    torch.manual_seed(5)
    expected = [torch.rand(2).tolist(), torch.empty(2).normal_().tolist(), torch.zeros(3).bernoulli_(0.5).tolist(), [1, 2]]
    assert alone(fn) == (expected, (2, 2))


READS = {
    "item": lambda x: x[0].item() == 5,
    "bool": lambda x: bool((x == 5).all()),
    "float": lambda x: float(x[0]) == 5,
    "tolist": lambda x: x.tolist() == [5.0] * 4,
    "numpy": lambda x: x.numpy().tolist() == [5.0] * 4,
    "asarray": lambda x: np.asarray(x).tolist() == [5.0] * 4,
    "cpu": lambda x: x.cpu().tolist() == [5.0] * 4,
    "print": lambda x: "5., 5." in str(x),
    "format": lambda x: f"{x[0]:.1f}" == "5.0",
    "equal": lambda x: torch.equal(x, torch.full((4,), 5.0)),
    "nonzero": lambda x: x.nonzero().numel() == 4,
    "mask": lambda x: x[x > 1].numel() == 4,
    "save": lambda x: torch.load(_saved(x)).tolist() == [5.0] * 4,
    "deepcopy": lambda x: copy.deepcopy(x).tolist() == [5.0] * 4,
    "dlpack": lambda x: np.from_dlpack(x).tolist() == [5.0] * 4,
    "rand of probabilities": lambda x: torch.zeros(4).bernoulli_(x / 5).tolist() == [1.0] * 4,
    "multinomial": lambda x: torch.multinomial(x, 4).unique().numel() == 4,
    "rrelu": lambda x: torch.nn.functional.rrelu_(x, training=True).tolist() == [5.0] * 4,
    "resize": lambda x: x.resize_(2).tolist() == [5.0] * 2,
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.0).tolist() == [5.0] * 4,
}


def _saved(tensor):
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("read", READS)
def test_reads_by_the_host_wait(read):
    def fn(gate):
        x = torch.zeros(4)
        x.fill_(5)
        assert gate.closed
        gate.open()
        return READS[read](x)

    for seed in range(3):
        assert alone(fn, seed=seed) is True


def test_a_read_waits_for_the_current_stream_only():
    def fn(gate):
        with streams.stream(streams.Stream()):
            x = torch.ones(2)
            x.add_(1)
            assert x.tolist() == [2.0, 2.0]
        assert gate.closed
        gate.open()

    alone(fn)


def test_wrong_shapes_raise_where_the_host_calls():
    def fn(gate):
        x = torch.zeros(3)
        gate.open()
        with pytest.raises(RuntimeError, match="must match"):
            x.add_(torch.ones(2))
        with pytest.raises(RuntimeError, match="must match"):
            torch.ones(2) + torch.ones(3)

    alone(fn)


def test_tensors_may_be_dropped_while_their_operators_are_queued():
    def fn(gate):
        result = torch.zeros(1000)
        for value in range(5):
            result += torch.full((1000,), float(value)) * 2
        gc.collect()
        torch.full((1000,), 99.0)  # would take freed memory
        gate.open()
        return result.sum().item()

    assert alone(fn) == 20_000.0


def test_autograd_behind_queued_work():
    def fn(gate):
        weight = torch.nn.Parameter(torch.ones(3))
        data = torch.zeros(3)
        data.fill_(4)
        (weight * data).sum().backward()
        with torch.no_grad():
            weight -= weight.grad
        gate.open()
        return weight.tolist(), weight.grad.tolist()

    assert alone(fn) == ([-3.0] * 3, [4.0] * 3)


def test_optimizer_step_behind_queued_work():
    def fn(gate):
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], lr=0.5)
        weight.grad = torch.zeros(3)
        weight.grad.fill_(2)
        optimizer.step()
        gate.open()
        return weight.tolist()

    assert alone(fn) == [0.0] * 3


@pytest.mark.parametrize("seed", range(4))
def test_copy_to_a_peer_is_in_stream_order(seed):
    """torch's copy_ to peer memory goes by the copy engine, behind earlier work and before later signals."""

    def fn():
        rank, size = world.rank(), world.world_size()
        inbox = symmetric.symm_zeros((size, 40_000), torch.float32)
        ready = symmetric.symm_zeros(size, torch.int64)
        mine = torch.zeros(40_000)
        mine.fill_(rank + 1.0)
        for peer in range(size):
            symmetric.symm_peer(inbox, peer)[rank].copy_(mine)
            streams.write_value(symmetric.symm_peer(ready, peer)[rank], 1)
        for source in range(size):
            streams.wait_value(ready[source], 1)
        return inbox.sum(1).tolist()

    assert simulate(fn, 3, seed=seed) == [[40_000.0, 80_000.0, 120_000.0]] * 3


def test_multi_tensor_operators_behind_queued_work():
    def fn(gate):
        tensors = [torch.zeros(2), torch.zeros(3)]
        torch._foreach_add_(tensors, 2.0)
        sums = torch._foreach_mul(tensors, 3.0)
        mean, variance = torch.zeros(2), torch.ones(2)
        x = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
        normed = torch.nn.functional.batch_norm(x + 0, mean, variance, training=True, momentum=1.0)
        indexed = torch.zeros(4)
        indexed[torch.tensor([1, 3])] = 2.0
        indexed.masked_fill_(indexed == 0, -1)
        gate.open()
        return [tensor.tolist() for tensor in tensors + list(sums)], mean.tolist(), normed.sign().tolist(), indexed.tolist()

    tensors, mean, signs, indexed = alone(fn)
    assert tensors == [[2.0] * 2, [2.0] * 3, [6.0] * 2, [6.0] * 3]
    assert mean == [2.0, 4.0]
    assert signs == [[-1.0, -1.0], [1.0, 1.0]]
    assert indexed == [-1.0, 2.0, -1.0, 2.0]


def test_results_are_complete_when_simulate_returns():
    def fn():
        gate = Gate()
        x = torch.zeros(2)
        x.fill_(3)
        gate.open()
        return x

    assert simulate(fn, 2)[1].tolist() == [3.0, 3.0]


def test_an_operator_that_fails_in_its_turn_says_which_one_and_whose():
    def fn(gate):
        x, index = torch.zeros(3), torch.zeros(2, dtype=torch.int64)
        index.fill_(7)
        x.index_select(0, index)
        assert gate.closed
        gate.open()
        streams.synchronize()

    with pytest.raises(IndexError) as caught:
        alone(fn)
    assert any("in torch.index_select, queued on a stream by rank 0" in note for note in caught.value.__notes__)


MAYBE_COPIES = {
    "contiguous": lambda x: x.t().contiguous(),
    "reshape": lambda x: x.t().reshape(12),
    "flatten": lambda x: x.t().flatten(),
    "to": lambda x: x.to(torch.float64),
    "type_as": lambda x: x.type_as(torch.zeros(1, dtype=torch.int64)),
    "matmul": lambda x: x @ x.t(),
    "linear": lambda x: torch.nn.functional.linear(x, x),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "stack": lambda x: torch.stack(list(x)),
    "in place": lambda x: x.add_(1).mul_(2),
    "copy": lambda x: torch.empty(3, 4, dtype=torch.float64).copy_(x),
    "setitem": lambda x: torch.cat([x, x.index_fill_(0, torch.tensor([1]), 7.0)]),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("operator", MAYBE_COPIES.values(), ids=MAYBE_COPIES)
def test_operators_that_may_copy_wait_their_turn_without_gradients(operator, mode):
    """In inference mode operators come as the user wrote them (``reshape``), and their results are inference tensors."""

    def values():
        return torch.arange(12, dtype=torch.float32).view(3, 4) - 4

    def fn(gate):
        with mode():
            x = torch.full((3, 4), 777.0)
            x.copy_(values())
            y = operator(x)
            z = y + 1
        gate.open()
        streams.synchronize()
        return y.clone(), z.clone(), y.is_inference()

    y, z, is_inference = alone(fn)
    torch.testing.assert_close(y, operator(values()))
    torch.testing.assert_close(z, operator(values()) + 1)
    assert is_inference is (mode is torch.inference_mode)


def test_recurrent_layer_behind_queued_work():
    """Its operator returns nothing where its shape rule says a tensor, so it waits for the stream."""

    def fn(wait):
        torch.manual_seed(0)
        layer, x = torch.nn.LSTM(4, 4), torch.zeros(3, 2, 4)
        if wait:
            streams.write_value(torch.zeros(1, dtype=torch.int32), 1)
        x.add_(1)
        y, _ = layer(x)
        y.sum().backward()
        return y.detach().clone(), layer.weight_ih_l0.grad.clone()

    for behind, alone_ in zip(simulate(fn, 1, args=(True,))[0], simulate(fn, 1, args=(False,))[0], strict=True):
        torch.testing.assert_close(behind, alone_)


def test_values_may_be_read_between_forward_and_backward():
    """What the stream computes late counts as one write of each tensor, made when the host called the operator."""

    def fn(gate):
        scale, weight = torch.zeros(8), torch.ones(8, requires_grad=True)
        scale.add_(2)
        loss = ((weight * scale).tanh() ** 2).sum()
        versions = scale._version, loss._version
        gate.open()
        value = loss.item()
        assert (scale._version, loss._version) == versions
        loss.backward()
        return value, weight.grad.clone()

    weight = torch.ones(8, requires_grad=True)
    loss = ((weight * 2).tanh() ** 2).sum()
    loss.backward()
    value, gradient = alone(fn)
    assert value == loss.item()
    torch.testing.assert_close(gradient, weight.grad)
