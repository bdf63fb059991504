"""Every device primitive: what it does, over world sizes, word widths and schedules, and how its misuse is named.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import triton_dist
import triton_dist.language as dl
from tests.worlds.world import meet
from triton_dist import errors
from triton_dist.language import consume_token, notify, rank, symm_at, wait

WORLD_SIZES = [1, 2, 3, 4, 8]
WORDS = [torch.int32, torch.int64]
HOLDS = {
    "eq": lambda seen, expected: seen == expected,
    "ne": lambda seen, expected: seen != expected,
    "gt": lambda seen, expected: seen > expected,
    "ge": lambda seen, expected: seen >= expected,
    "lt": lambda seen, expected: seen < expected,
    "le": lambda seen, expected: seen <= expected,
}


def launch(kernel, *arguments, grid=(1,), **options):
    kernel[grid](*arguments, **options)
    triton_dist.synchronize()


@triton.jit
def helper_rank():
    return dl.rank() * 10 + dl.num_ranks()


@triton.jit
def rank_kernel(out):
    tl.store(out, rank())
    tl.store(out + 1, dl.num_ranks())
    tl.store(out + 2, helper_rank())
    tl.store(out + 3 + tl.arange(0, 4), dl.rank() + tl.arange(0, 4))


def ask_rank() -> list[int]:
    out = torch.zeros(7, dtype=torch.int32, device=triton_dist.device())
    launch(rank_kernel, out)
    return out.tolist()


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_rank_and_num_ranks(world, world_size):
    expected = [[r, world_size, 10 * r + world_size, r, r + 1, r + 2, r + 3] for r in range(world_size)]
    assert world(ask_rank, world_size) == expected


@triton_dist.jit
def gather_by_load_kernel(source, out, COUNT: tl.constexpr):
    """Scalar pointers, tensors of pointers with one rank, and one rank for each element."""
    offset = tl.arange(0, COUNT)
    for peer in range(dl.num_ranks()):
        tl.store(out + peer * COUNT + offset, tl.load(symm_at(source, peer) + offset))
        again = tl.load(dl.symm_at(source + offset, peer))
        tl.store(out + (dl.num_ranks() + peer) * COUNT + offset, again)
    each = tl.load(dl.symm_at(source + offset, offset % dl.num_ranks()))
    tl.store(out + 2 * dl.num_ranks() * COUNT + offset, each)


def gather_by_load(dtype: torch.dtype, count: int) -> torch.Tensor:
    source = triton_dist.symm_empty((count,), dtype)
    source.copy_((triton_dist.rank() * 7 + torch.arange(count)).to(dtype))
    meet()
    out = torch.zeros((2 * triton_dist.world_size() + 1) * count, dtype=dtype, device=triton_dist.device())
    launch(gather_by_load_kernel, source, out, COUNT=count)
    return out


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.float64])
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_symm_at_reaches_every_rank(world, world_size, dtype):
    count = 16

    shards = torch.stack([(r * 7 + torch.arange(count)).to(dtype) for r in range(world_size)])
    mixed = shards[torch.arange(count) % world_size, torch.arange(count)]
    expected = torch.cat([shards.ravel(), shards.ravel(), mixed])
    for out in world(gather_by_load, world_size, args=(dtype, count)):
        assert torch.equal(out, expected)


@triton_dist.jit
def store_to_peer_kernel(target, count, BLOCK: tl.constexpr):
    peer = (dl.rank() + 1) % dl.num_ranks()
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dl.symm_at(target, peer) + offset, dl.rank() + offset, mask=offset < count)


def store_to_peer() -> list[int]:
    target = triton_dist.symm_zeros((100,), torch.int32)
    launch(store_to_peer_kernel, target, 77, grid=(3,), BLOCK=32)
    meet()
    return target.tolist()


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_stores_to_a_peer(world, world_size):
    for me, out in enumerate(world(store_to_peer, world_size)):
        assert out == [(me - 1) % world_size + offset for offset in range(77)] + [0] * 23


@triton_dist.jit
def wait_kernel(words, out, count, expected, CMP: tl.constexpr):
    dl.wait(words, count, "sys", "acquire", waitValue=expected, cmp=CMP)
    tl.store(out, 1)


@triton_dist.jit
def named_wait_kernel(words, out, count, expected, CMP: tl.constexpr):
    if CMP == "eq":
        dl.wait_eq(words, count, "sys", "acquire", expected)
    elif CMP == "ne":
        dl.wait_ne(words, count, "sys", "acquire", expected)
    elif CMP == "gt":
        dl.wait_gt(words, count, "sys", "acquire", expected)
    elif CMP == "ge":
        dl.wait_ge(words, count, "sys", "acquire", expected)
    elif CMP == "lt":
        dl.wait_lt(words, count, "sys", "acquire", expected)
    else:
        dl.wait_le(words, count, "sys", "acquire", expected)
    tl.store(out, 1)


def passes(kernel, values: list[int], expected: int, cmp: str, dtype: torch.dtype) -> bool:
    """Whether a wait for ``expected`` on words with these values ends; if not, it has to be a deadlock that names the word."""
    words, out = torch.tensor(values, dtype=dtype), torch.zeros(1, dtype=torch.int32)
    try:
        kernel[(1,)](words, out, len(values), expected, CMP=cmp)
    except errors.DeadlockError as error:
        assert "waits for words[" in str(error) and out.item() == 0
        return False
    return out.item() == 1


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("cmp", HOLDS)
def test_every_condition_of_a_wait(cmp, dtype):
    for seen in (-5, 0, 3, 4, 5, 100):
        for expected in (-5, 4):
            assert passes(wait_kernel, [seen], expected, cmp, dtype) == HOLDS[cmp](seen, expected)
            assert passes(named_wait_kernel, [seen], expected, cmp, dtype) == HOLDS[cmp](seen, expected)


def held(kernel, cases: list[tuple[list[int], int]], cmp: str, dtype: torch.dtype) -> int:
    """One rank: how many waits, for words with these values and what they are compared with, ended; all of them hold."""
    ended = 0
    for values, expected in cases:
        words = torch.tensor(values, dtype=dtype).to(triton_dist.device())
        out = torch.zeros(1, dtype=torch.int32, device=triton_dist.device())
        launch(kernel, words, out, len(values), expected, CMP=cmp)
        ended += out.item()
    return ended


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("cmp", HOLDS)
def test_waits_that_hold_end(world, cmp, dtype):
    """The half of the test above that ends, so that it can run anywhere; and words of every number, and past a wrapped counter."""
    pairs = [(seen, expected) for seen in (-5, 3, 4, 5) for expected in (-5, 4) if HOLDS[cmp](seen, expected)]
    cases = [([seen] * count, expected) for seen, expected in pairs for count in (1, 33)]
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    cases += {"ge": [([low + 1], high)], "gt": [([low], high)], "lt": [([high], low)], "le": [([high - 3], low + 3)]}.get(cmp, [])
    for kernel in (wait_kernel, named_wait_kernel):
        assert world(held, 1, args=(kernel, cases, cmp, dtype)) == [len(cases)]


@pytest.mark.parametrize("dtype", WORDS)
def test_ordered_waits_are_safe_when_a_counter_wraps_around(dtype):
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    assert passes(wait_kernel, [low + 1], high, "ge", dtype) and passes(wait_kernel, [low], high, "gt", dtype)
    assert passes(wait_kernel, [high], low, "lt", dtype) and passes(wait_kernel, [high - 3], low + 3, "le", dtype)
    assert not passes(wait_kernel, [high], low, "ge", dtype) and not passes(wait_kernel, [low], high, "le", dtype)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 33, 100])
def test_a_wait_looks_at_all_its_words(count):
    """No word is left out, whatever the number: one wrong word anywhere holds the wait."""
    assert passes(wait_kernel, [3] * count, 3, "eq", torch.int32)
    for wrong in {0, count // 2, count - 1} if count else ():
        values = [3] * count
        values[wrong] = 2
        assert not passes(wait_kernel, values, 3, "eq", torch.int32)


@triton_dist.jit
def notify_all_kernel(words, value, OP: tl.constexpr, SCOPE: tl.constexpr):
    for peer in range(dl.num_ranks()):
        notify(words, peer, signal=value, sig_op=OP, comm_scope=SCOPE)


def notify_all(value: int, op: str, scope: str, dtype: torch.dtype, start: int = 0, programs: int = 5) -> int:
    words = triton_dist.symm_full((1,), start, dtype)
    meet()
    launch(notify_all_kernel, words, value, grid=(programs,), OP=op, SCOPE=scope)
    meet()
    return words.item()


@pytest.mark.parametrize("scope", ["intra_node", "inter_node"])
@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_notify_adds_on_every_rank(world, world_size, dtype, scope):
    for seed in range(2):
        assert world(notify_all, world_size, args=(3, "add", scope, dtype), seed=seed) == [3 * 5 * world_size] * world_size


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("value", [0, 1, -1, 1 << 30])
def test_notify_sets_and_adds_wrap_around(world, value, dtype):
    start = torch.iinfo(dtype).max
    bits = torch.iinfo(dtype).bits
    wrapped = (torch.iinfo(dtype).max + value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    assert world(notify_all, 1, args=(value, "set", "gpu", dtype, start, 1)) == [value]
    assert world(notify_all, 1, args=(value, "add", "intra_node", dtype, start, 1)) == [wrapped]


@triton_dist.jit
def default_notify_kernel(words):
    dl.notify(words, (dl.rank() + 1) % dl.num_ranks())
    dl.wait(words, 1, "sys", "acquire")


def default_notify() -> int:
    words = triton_dist.symm_zeros((1,), torch.int64)
    launch(default_notify_kernel, words)
    return words.item()


@pytest.mark.parametrize("world_size", [2, 4])
def test_the_defaults_of_notify(world, world_size):
    assert world(default_notify, world_size) == [1] * world_size


def test_the_defaults_of_notify_reach_other_nodes():
    assert triton_dist.simulate(default_notify, 4, num_nodes=2) == [1] * 4


@triton_dist.jit
def exchange_kernel(inbox, signals, out, rounds, COUNT: tl.constexpr, TOKEN: tl.constexpr):
    """Send a tile to the next rank, wait for the one from the rank before, say that it was read, again and again in one slot."""
    me, size = dl.rank(), dl.num_ranks()
    after, before = (me + 1) % size, (me + size - 1) % size
    offset = tl.arange(0, COUNT)
    for number in range(rounds):
        wait(signals + 1, 1, "sys", "acquire", waitValue=number, cmp="ge")
        tl.store(symm_at(inbox, after) + offset, me * 1000 + number * 10 + offset)
        notify(signals, after, signal=number + 1, sig_op="set", comm_scope="intra_node")
        token = wait(signals, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")
        if TOKEN == "pointer":
            values = tl.load(consume_token(inbox, token) + offset)
        elif TOKEN == "tensor":
            values = tl.load(consume_token(inbox + offset, token))
        else:
            values = tl.load(inbox + consume_token(offset, token))
        tl.store(out + number * COUNT + offset, values)
        notify(signals + 1, before, signal=number + 1, sig_op="set", comm_scope="intra_node")


@triton_dist.jit
def hasty_exchange_kernel(inbox, signals, out, rounds, COUNT: tl.constexpr, TOKEN: tl.constexpr):
    """The racy twin: it does not wait until the slot was read."""
    me, size = dl.rank(), dl.num_ranks()
    after = (me + 1) % size
    offset = tl.arange(0, COUNT)
    for number in range(rounds):
        tl.store(symm_at(inbox, after) + offset, me * 1000 + number * 10 + offset)
        notify(signals, after, signal=number + 1, sig_op="set", comm_scope="intra_node")
        token = wait(signals, 1, "sys", "acquire", waitValue=number + 1, cmp="ge")
        tl.store(out + number * COUNT + offset, tl.load(consume_token(inbox, token) + offset))


@triton_dist.jit
def impatient_exchange_kernel(inbox, signals, out, rounds, COUNT: tl.constexpr, TOKEN: tl.constexpr):
    """The hanging twin: it waits by equality for a word that may be past the value."""
    me, size = dl.rank(), dl.num_ranks()
    after = (me + 1) % size
    for number in range(rounds):
        notify(signals, after, signal=number + 1, sig_op="set", comm_scope="intra_node")
        notify(signals, after, signal=number + 2, sig_op="set", comm_scope="intra_node")
        wait(signals, 1, "sys", "acquire", waitValue=number + 1)


def exchange(kernel, token: str = "pointer", rounds: int = 6, count: int = 16) -> bool:
    """One rank of an exchange: whether all that it got is right."""
    inbox, signals = triton_dist.symm_zeros((count,), torch.int32), triton_dist.symm_zeros((2,), torch.int32)
    out = torch.zeros(rounds * count, dtype=torch.int32, device=triton_dist.device())
    launch(kernel, inbox, signals, out, rounds, COUNT=count, TOKEN=token)
    before = (triton_dist.rank() - 1) % triton_dist.world_size()
    expected = before * 1000 + 10 * torch.arange(rounds)[:, None] + torch.arange(count)
    return torch.equal(out.cpu(), expected.ravel().to(torch.int32))


@pytest.mark.parametrize("schedule", ["random", "straggler", "round_robin"])
@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_data_is_there_when_its_signal_is(world, world_size, schedule):
    for seed in range(3):
        assert all(world(exchange, world_size, args=(exchange_kernel,), seed=seed, schedule=schedule))


@pytest.mark.parametrize("token", ["pointer", "tensor", "value"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_token_is_consumed_in_any_form(world, world_size, token):
    assert all(world(exchange, world_size, args=(exchange_kernel, token)))


def test_the_racy_twin_is_wrong_under_some_schedule():
    runs = [triton_dist.simulate(exchange, 3, args=(hasty_exchange_kernel,), seed=seed, schedule="straggler") for seed in range(6)]
    assert not all(all(run) for run in runs)


def test_the_hanging_twin_is_named_under_some_schedule():
    seen = set()
    for seed in range(6):
        try:
            triton_dist.simulate(exchange, 3, args=(impatient_exchange_kernel,), seed=seed)
        except errors.DeadlockError as error:
            seen.add("last written by" in str(error))
    assert True in seen


@triton_dist.jit
def flag_first_kernel(inbox, signals, out, BY: tl.constexpr, COUNT: tl.constexpr):
    """A racy twin: it sets the flag and stores the data after it."""
    me, size = dl.rank(), dl.num_ranks()
    after = (me + 1) % size
    offset = tl.arange(0, COUNT)
    if BY == "notify":
        notify(signals, after, signal=1, sig_op="set", comm_scope="intra_node")
    elif BY == "st":
        dl.st(symm_at(signals, after), 1, "sys", "release")
    else:
        tl.atomic_xchg(symm_at(signals, after), 1, sem="release", scope="sys")
    tl.store(symm_at(inbox, after) + offset, offset + 1)
    token = wait(signals, 1, "sys", "acquire", waitValue=1)
    tl.store(out + offset, tl.load(consume_token(inbox, token) + offset))


@pytest.mark.parametrize("by", ["notify", "st", "atomic"])
def test_a_flag_that_is_set_before_its_data_is_seen_to_be(by):
    def run():
        inbox, signals = triton_dist.symm_zeros((16,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
        out = torch.zeros(16, dtype=torch.int32)
        launch(flag_first_kernel, inbox, signals, out, BY=by, COUNT=16)
        return torch.equal(out, torch.arange(1, 17, dtype=torch.int32))

    runs = [all(triton_dist.simulate(run, 3, seed=seed)) for seed in range(10)]
    assert not all(runs)


@triton_dist.jit
def descriptor_kernel(source, signals, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    token = dl.wait(signals, 1, "sys", "acquire")
    tile = tl.make_tensor_descriptor(source, [ROWS, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
    tile = dl.consume_token(tile, token)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    tl.store(out + row[:, None] * COLUMNS + column[None, :], tile.load([0, 0]))


def load_by_descriptor() -> bool:
    device = triton_dist.device()
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))
    signals = triton_dist.symm_full((1,), 1, torch.int32)
    source, out = torch.arange(64.0, device=device).reshape(4, 16), torch.zeros(4, 16, device=device)
    launch(descriptor_kernel, source, signals, out, ROWS=4, COLUMNS=16)
    return torch.equal(out, source)


def test_a_descriptor_passes_through_consume_token(world):
    assert world(load_by_descriptor, 2) == [True, True]


@triton_dist.jit
def word_kernel(words, out, ADD: tl.constexpr):
    """One warp's threads do the same: the store stores one value; the add adds once a thread."""
    dl.st(words, 41, "sys", "release")
    tl.store(out, dl.ld(words, "sys", "acquire"))
    if ADD:
        dl.atomic_add(words, 1, "gpu", "acq_rel")
        dl.fence_cta()
        dl.fence_gpu()
        dl.fence_sys()
        dl.__syncthreads()
        tl.store(out + 1, dl.ld(words, "gpu", "relaxed"))


def use_word(dtype: torch.dtype, add: bool) -> list:
    words, out = torch.zeros(1, dtype=dtype, device=triton_dist.device()), torch.zeros(2, dtype=dtype, device=triton_dist.device())
    launch(word_kernel, words, out, ADD=add, num_warps=1)
    return out.tolist()


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_words_of_every_dtype(world, dtype):
    add = dtype in (torch.int32, torch.int64)
    assert world(use_word, 1, args=(dtype, add)) == [[41, 41 + 32] if add else [41, 0]]


@triton_dist.jit
def spin_lock_kernel(lock, counter, ROUNDS: tl.constexpr):
    """A lock between ranks: taken by one thread with ``atomic_cas``, given back by ``st``."""
    home_lock, home_counter = dl.symm_at(lock, 0), dl.symm_at(counter, 0)
    for _ in range(ROUNDS):
        if dl.tid(0) == 0:
            while dl.atomic_cas(home_lock, 0, 1, "sys", "acquire") != 0:
                pass
            dl.st(home_counter, dl.ld(home_counter, "sys", "relaxed") + 1, "sys", "relaxed")
            dl.st(home_lock, 0, "sys", "release")
        dl.__syncthreads()


def count_under_lock() -> int:
    lock, counter = triton_dist.symm_zeros((1,), torch.int32), triton_dist.symm_zeros((1,), torch.int32)
    launch(spin_lock_kernel, lock, counter, grid=(2,), ROUNDS=3)
    meet()
    return counter.item()


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_lock_between_ranks(world, world_size):
    for seed in range(2):
        assert world(count_under_lock, world_size, seed=seed)[0] == 2 * 3 * world_size


@triton_dist.jit
def release_wait_kernel(words):
    dl.wait(words, 1, "sys", "release")


@triton_dist.jit
def wrong_scope_kernel(words):
    dl.wait(words, 1, "world", "acquire")


@triton_dist.jit
def float_rank_kernel(words):
    dl.notify(words, 1.5)


@triton_dist.jit
def float_word_kernel(words):
    dl.wait(words.to(tl.pointer_type(tl.float32)), 1, "sys", "acquire")


@pytest.mark.parametrize(
    ("kernel", "parts"),
    [
        (release_wait_kernel, ["wait", "semantic", "release", "acquire"]),
        (wrong_scope_kernel, ["wait", "scope", "world", "sys"]),
        (float_rank_kernel, ["notify", "rank"]),
        (float_word_kernel, ["wait", "barrierPtrs"]),
    ],
)
def test_wrong_arguments_are_named_while_compiling(kernel, parts):
    with pytest.raises(triton.CompilationError) as caught:
        kernel[(1,)](torch.zeros(1, dtype=torch.int32))
    chain, error = [], caught.value
    while error is not None:
        chain.append(str(error))
        error = error.__cause__ or error.__context__
    assert all(part in "\n".join(chain) for part in parts)


@triton_dist.jit
def wait_for_fewer_than_none_kernel(words, count):
    dl.wait(words, count, "sys", "acquire", waitValue=1)


@pytest.mark.parametrize("count", [-1, -3])
def test_a_wait_for_a_negative_number_of_words_is_named(count):
    with pytest.raises(errors.SimulationError, match=f"wait is given {count} words"):
        wait_for_fewer_than_none_kernel[(1,)](torch.zeros(4, dtype=torch.int32), count)
