"""Arguments of ``nvshmem.core`` and ``nvshmem.bindings`` that are of the wrong kind: each is an error of this package that names it."""

import numpy as np
import pytest
import torch

from triton_dist.errors import InvalidArgumentError
from triton_dist.nvshmem_shim import bindings, core
from triton_dist.sim.simulate import simulate

SET, EQ = core.SignalOp.SIGNAL_SET, core.ComparisonType.CMP_EQ
NO_TENSORS = (None, np.zeros(1, dtype=np.int64), 1 << 20, "word", [0])


def in_world(fn, world_size=1):
    def body():
        return fn(core.tensor((4,), torch.float32), core.tensor((1,), torch.int64))

    return simulate(body, world_size)


@pytest.mark.parametrize("wrong", NO_TENSORS, ids=repr)
@pytest.mark.parametrize(
    "use",
    {
        "put, dst": lambda wrong, x, word: core.put(wrong, x, 0),
        "put, src": lambda wrong, x, word: core.put(x, wrong, 0),
        "get, dst": lambda wrong, x, word: core.get(wrong, x, 0),
        "get, src": lambda wrong, x, word: core.get(x, wrong, 0),
        "put_signal": lambda wrong, x, word: core.put_signal(x, x, wrong, 1, SET, 0),
        "signal_op": lambda wrong, x, word: core.signal_op(wrong, 1, SET, 0),
        "signal_wait": lambda wrong, x, word: core.signal_wait(wrong, 1, EQ),
        "free_tensor": lambda wrong, x, word: core.free_tensor(wrong),
        "free": lambda wrong, x, word: core.free(wrong),
        "get_peer_tensor": lambda wrong, x, word: core.get_peer_tensor(wrong, 0),
        "get_peer_buffer": lambda wrong, x, word: core.get_peer_buffer(wrong, 0),
        "tensor_get_buffer": lambda wrong, x, word: core.tensor_get_buffer(wrong),
    }.items(),
    ids=lambda item: item[0],
)
def test_what_is_no_symmetric_memory(use, wrong):
    with pytest.raises(InvalidArgumentError, match=f"nvshmem.core.{use[0].split(',')[0]}"):
        in_world(lambda x, word: use[1](wrong, x, word))


def test_a_buffer_and_a_tensor_are_not_each_other():
    with pytest.raises(InvalidArgumentError, match="is not a Buffer"):
        in_world(lambda x, word: core.free(x))
    with pytest.raises(InvalidArgumentError, match="is not a torch tensor"):
        in_world(lambda x, word: core.free_tensor(core.buffer(8)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: core.tensor((4,), torch.float32),
        lambda: core.tensor((1,), torch.float32),
        lambda: core.tensor((1,), torch.int16),
        lambda: core.tensor((2,), torch.int64),
        lambda: core.tensor((1,), torch.bool),
        lambda: core.buffer(4),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda word: core.signal_op(word, 1, SET, 0),
        lambda word: core.signal_wait(word, 1, EQ),
        lambda word: core.put_signal(core.tensor((1,)), core.tensor((1,)), word, 1, SET, 0),
    ],
)
def test_what_is_no_signal_word(use, make):
    with pytest.raises(InvalidArgumentError, match="a signal word"):
        simulate(lambda: use(make()), 1)


@pytest.mark.parametrize("wrong", [9, -1, "eq", None, 1.5], ids=repr)
def test_what_is_no_comparison(wrong):
    with pytest.raises(InvalidArgumentError, match=r"nvshmem.core.signal_wait: .* is not one of .*CMP_EQ"):
        in_world(lambda x, word: core.signal_wait(word, 1, wrong))


@pytest.mark.parametrize("wrong", [3, "set", None, 9.5], ids=repr)
def test_what_is_no_operation_of_a_signal(wrong):
    def after_a_put(x, word):
        source = torch.full((4,), 7.0)
        x.zero_()
        with pytest.raises(InvalidArgumentError, match="neither SIGNAL_SET"):
            core.put_signal(x, source, word, 1, wrong, 0)
        return x.tolist()

    assert in_world(after_a_put) == [[0.0] * 4]  # nothing was put
    for use in (
        lambda x, word: core.signal_op(word, 1, wrong, 0),
        lambda x, word: bindings.signal_op_on_stream(word.data_ptr(), 1, wrong, 0, 0),
        lambda x, word: bindings.putmem_signal_on_stream(x.data_ptr(), x.data_ptr(), 4, word.data_ptr(), 1, wrong, 0, 0),
    ):
        with pytest.raises(InvalidArgumentError, match="neither SIGNAL_SET"):
            in_world(use)


@pytest.mark.parametrize(
    "use, said",
    [
        (lambda x, word: core.signal_op(word, 1 << 64, SET, 0), "does not fit into a signal word of 64 bits"),
        (lambda x, word: core.signal_op(core.tensor((1,), torch.int32), 1 << 40, SET, 0), "of 32 bits"),
        (lambda x, word: core.signal_op(word, "1", SET, 0), "value must be an integer"),
        (lambda x, word: core.signal_op(word, 1, SET, "0"), "the rank must be an integer"),
        (lambda x, word: core.put(x, x, "0"), "the rank must be an integer"),
        (lambda x, word: core.put(x, x), "there is no rank -1"),
        (lambda x, word: core.get_peer_tensor(x, "0"), "peer_pe must be an integer"),
        (lambda x, word: core.team_my_pe("world"), "is not the handle of a team"),
        (lambda x, word: core.team_n_pes(None), "is not the handle of a team"),
        (lambda x, word: core.barrier(None), "is not the handle of a team"),
        (lambda x, word: core.team_destroy("x"), "is not the handle of a team"),
        (lambda x, word: core.team_split_strided(0, "0", 1, 1), "start must be an integer"),
        (lambda x, word: core.team_split_2d(0, None), "xrange must be an integer"),
        (lambda x, word: core.bytetensor((2,), "float32"), "must be a torch dtype"),
        (lambda x, word: core.bytetensor("ab"), "must be an integer or a sequence of integers"),
        (lambda x, word: bindings.putmem_on_stream(None, x.data_ptr(), 4, 0, 0), "an address must be an integer, not None"),
        (lambda x, word: bindings.putmem_on_stream(x.data_ptr(), "x", 4, 0, 0), "an address must be an integer, not 'x'"),
        (lambda x, word: bindings.getmem_on_stream(x.data_ptr(), x.data_ptr(), -4, 0, 0), "-4 bytes"),
        (lambda x, word: bindings.signal_op_on_stream(None, 1, SET, 0, 0), "an address must be an integer"),
        (lambda x, word: bindings.signal_op_on_stream(word.data_ptr() + 4, 1, SET, 0, 0), "no multiple of 8"),
        (lambda x, word: bindings.free("x"), "an address must be an integer"),
        (lambda x, word: bindings.ptr(x.data_ptr(), "0"), "pe must be an integer"),
    ],
)
def test_numbers(use, said):
    with pytest.raises(InvalidArgumentError, match=said):
        in_world(use)


def test_unsigned_words_hold_all_their_values():
    def fn():
        word = core.tensor((1,), torch.int64)
        word.zero_()
        core.signal_op(word, (1 << 64) - 1, SET, 0)
        core.signal_wait(word, -1, EQ)
        core.signal_op(word, 3, core.SignalOp.SIGNAL_ADD, 0)
        core.signal_wait(word, 2, EQ)
        return word.item()

    assert simulate(fn, 1) == [2]
