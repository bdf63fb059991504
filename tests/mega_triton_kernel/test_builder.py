"""Programs of several operations: order by data, memory that is used again, every way of scheduling, traces, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import triton_dist
from tests.differences import relative_error
from triton_dist import errors
from triton_dist.mega_triton_kernel import ModelBuilder, builder, schedule

from . import references
from .references import Random, nan_like

WAYS = {
    "dealt": {},
    "in order": {"enable_dep_opt": False},
    "taken": {"enable_runtime_scheduler": True},
    "taken in order": {"enable_runtime_scheduler": True, "enable_dep_opt": False},
}


def mlp_of_layers(random: Random, layers: int, made: ModelBuilder) -> tuple[torch.Tensor, torch.Tensor, list[tuple[torch.Tensor, ...]]]:
    """``layers`` MLPs with residuals, all in the same few buffers; x, where the result is, and the weights."""
    rows, hidden, inner = 3, 72, 100
    x, weights = random(rows, hidden), []
    state, normed, wide, act, down = (
        nan_like(shape, x) for shape in ((rows, hidden), (rows, hidden), (rows, 2 * inner), (rows, inner), (rows, hidden))
    )
    given = x
    for layer in range(layers):
        weights.append((random(hidden), random(2 * inner, hidden, scale=0.1), random(hidden, inner, scale=0.1)))
        norm, up, back = weights[-1]
        made.make_rms_norm(given, norm, normed, layer_id=layer)
        made.make_fc1(normed, up, wide, layer)
        made.make_silu_mul_up(wide, act, layer)
        made.make_prefetch(back, layer)
        made.make_fc2(act, back, down, layer)
        made.make_add(given, down, state, layer)
        given = state
    return x, state, weights


def expected_mlp(x: torch.Tensor, weights: list[tuple[torch.Tensor, ...]]) -> torch.Tensor:
    value = x.double().cpu()
    for norm, up, back in weights:
        hidden = references.silu_mul_up(references.linear(references.rms_norm(value, norm), up))
        value = value + references.linear(hidden, back)
    return value


def runs_of(
    made: ModelBuilder, random: Random, x: torch.Tensor, state: torch.Tensor, weights: list[tuple[torch.Tensor, ...]]
) -> list[float]:
    """The errors of four runs, each of another x."""
    found = []
    for _ in range(4):
        x.copy_(random(*x.shape))
        made.run()
        triton_dist.synchronize()
        found.append(relative_error(state, expected_mlp(x, weights)))
    return found


def layers_run_again(options: dict) -> list[float]:
    random = Random(7)
    made = ModelBuilder(num_sms=5, **options)
    x, state, weights = mlp_of_layers(random, 3, made)
    made.compile()
    return runs_of(made, random, x, state, weights)


@pytest.mark.parametrize("way", WAYS)
def test_layers_that_share_buffers(world, way):
    assert max(world(layers_run_again, 1, args=(WAYS[way],))[0]) < 1e-5


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_layers_have_no_finding(way, seed):
    assert max(triton_dist.simulate(layers_run_again, world_size=1, seed=seed, args=(WAYS[way],), check="all")[0]) < 1e-5


def test_buffers_that_are_used_again_have_no_finding():
    assert max(triton_dist.simulate(buffers_in_turn, world_size=1, check="all")[0]) < 1e-5


def near_the_end_of_words(options: dict) -> list[float]:
    """As after two thousand million runs: every word is where that many runs leave it, or wraps around to."""
    random = Random(15)
    made = ModelBuilder(num_sms=5, **options)
    x, state, weights = mlp_of_layers(random, 2, made)
    made.compile()
    made.run()
    triton_dist.synchronize()
    plan = made._plan
    for words, steps in ((plan.state, plan.state.tolist()), (plan.words, plan.words.tolist())):
        # After one run, a word holds what a run adds to it.
        words.copy_((torch.tensor(steps, dtype=torch.int64) * (2**31 - 2) + 2**31) % 2**32 - 2**31)
    return runs_of(made, random, x, state, weights)


@pytest.mark.parametrize("way", WAYS)
def test_words_wrap_around(world, way):
    assert max(world(near_the_end_of_words, 1, args=(WAYS[way],))[0]) < 1e-5


def buffers_in_turn() -> list[float]:
    """Later operations overwrite what earlier ones read and wrote, and read parts of tensors by other shapes."""
    random = Random(8)
    a, b, w = random(4, 60), random(4, 60), random(60, 60, scale=0.1)
    one, two = nan_like(a.shape, a), nan_like(a.shape, a)
    first = a.clone()
    made = ModelBuilder(num_sms=3)
    made.make_linear(first, w, one)
    made.make_add(one.view(240), b.view(240), one.view(240))
    made.make_linear(one, w, first)  # written where the first product reads
    made.make_add(first.view(8, 30), one.view(8, 30), two.view(8, 30))
    made.compile()
    found = []
    for _ in range(2):
        first.copy_(a)
        made.run()
        triton_dist.synchronize()
        inner = references.linear(a, w) + b.double().cpu()
        outer = references.linear(inner, w)
        found += [relative_error(one, inner), relative_error(first, outer), relative_error(two, inner + outer)]
    return found


def test_buffers_that_are_used_again(world):
    assert max(world(buffers_in_turn, 1)[0]) < 1e-5


def test_a_lost_wait_is_a_race(monkeypatch):
    """The twin: what the kernel waits for is all that orders tiles, so without it the simulator names a data race."""

    def without_the_last(operations, *, in_order=False):
        found = real(operations, in_order=in_order)
        return [*found[:-1], [[] for _ in found[-1]]]

    real = schedule.dependencies
    monkeypatch.setattr(schedule, "dependencies", without_the_last)
    with pytest.raises(errors.DataRaceError, match=r"elementwise\.py"):
        triton_dist.simulate(layers_run_again, world_size=1, args=({},), check="race")


def traced(tmp_path: str, options: dict) -> tuple:
    made = ModelBuilder(num_sms=4, enable_profiling=True, **options)
    x, state, weights = mlp_of_layers(Random(9), 2, made)
    made.compile()
    made.run()
    made.run()
    activity, path = made.get_sm_activity(), made.dump_trace(f"{tmp_path}/program")
    return relative_error(state, expected_mlp(x, weights)), activity, str(path), dict(made.task_types_to_str), made.get_memory_size()


@pytest.mark.parametrize("way", ["dealt", "taken"])
def test_traces(world, tmp_path, monkeypatch, way):
    pytest.importorskip("perfetto")
    wrong, activity, path, names, moved = world(traced, 1, args=(str(tmp_path), WAYS[way]))[0]
    assert wrong < 1e-5 and 0 < activity < 1
    assert path.endswith("program_RANK_0") and Path(path).stat().st_size
    kinds = {"rms_norm", "mlp_fc1_silu_mul_up", "prefetch", "mlp_fc2", "add_rms_norm", "add"}
    assert names[0] == "scoreboard_wait_deps" and set(names.values()) - {names[0]} == kinds
    assert moved > 2 * 4 * (200 * 72 + 72 * 100)


def in_graph() -> float:
    random = Random(10)
    made = ModelBuilder()
    x, state, weights = mlp_of_layers(random, 2, made)
    made.compile()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made.run()
    for _ in range(1000):
        x.copy_(random(*x.shape))
        graph.replay()
    return relative_error(state, expected_mlp(x, weights))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are captured on GPUs")
def test_a_graph_of_it_replays(world):
    assert world(in_graph, 1)[0] < 1e-5


def refusals() -> list[str]:
    random, told = Random(11), []
    x, weight, out = random(4, 32), random(48, 32), random(4, 48)

    def refused(call, *arguments, **options) -> None:
        try:
            call(*arguments, **options)
        except errors.InvalidArgumentError as error:
            told.append(str(error))
        else:
            told.append(f"not refused: {call.__name__} {arguments}")

    made = ModelBuilder(num_sms=2)
    refused(made.run)
    refused(made.compile)
    refused(made.get_sm_activity)
    refused(made.make_linear, x, random(48, 31), out)
    refused(made.make_linear, x, weight, random(4, 47))
    refused(made.make_linear, x.half(), weight, out)
    refused(made.make_linear, random(32, 4).T, weight, out)
    refused(made.make_linear, x.view(-1)[1:33].view(1, 32), weight, random(1, 48))
    refused(made.make_linear, x.int(), weight.int(), out.int())
    refused(made.make_linear, None, weight, out)
    refused(made.make_linear, x[:0], weight, out[:0])
    refused(made.make_silu_mul_up, random(4, 31), random(4, 15))
    refused(made.make_flash_attn, random(1, 8, 3, 16), random(1, 8, 2, 16), random(1, 8, 2, 16), random(1, 8, 3, 16))
    refused(made.make_flash_attn, random(1, 8, 2, 16), random(1, 4, 2, 16), random(1, 4, 2, 16), random(1, 8, 2, 16))
    refused(made.make_qkv_pack_flash_attn, random(1, 8, 5, 16), random(1, 8, 2, 16))
    refused(made.make_barrier_all_intra_node, x)
    refused(made.make_barrier_all_intra_node, 4)
    refused(ModelBuilder, num_sms=1000)
    refused(ModelBuilder, num_sms=1.5)
    refused(ModelBuilder, num_sms="2")
    refused(ModelBuilder, num_warps=3)
    refused(ModelBuilder, num_warps=0)
    refused(ModelBuilder, num_warps="4")
    refused(ModelBuilder, rank="0")
    refused(ModelBuilder, rank=2, world_size=2)
    refused(ModelBuilder, rank=0, world_size=3, local_world_size=2)
    refused(made.make_linear, x, random(32, 32), x)
    shifted = ModelBuilder(num_sms=1)
    shifted.make_add(weight[:2], x[:2], weight.flatten()[4:68].view(2, 32))
    refused(shifted.compile)
    return told


WORDS = (
    "compile", "no operations", "enable_profiling", "weight is (48, 31)", "output is (4, 47)", "weight is torch.float32", "contiguous",
    "multiple of 16", "torch.int32", "None", "no elements", "even number", "3 heads of q", "8 tokens of q, 4 of k", "5 heads",
    "list of tensors", "list of tensors", "num_sms=1000", "num_sms=1.5", "num_sms='2'", "num_warps=3", "num_warps=0", "num_warps='4'",
    "rank='0'", "rank=2", "world_size=3", "shares no memory", "a part of what it reads",
)  # fmt: skip


def test_what_does_not_fit_is_refused(world):
    told = world(refusals, 1)[0]
    assert len(told) == len(WORDS)
    assert [word for word, text in zip(WORDS, told, strict=True) if word not in text] == []


def test_a_world_that_is_not_there_is_named(monkeypatch):
    with pytest.raises(errors.NotInitializedError, match="initialize"):
        ModelBuilder(rank=0, world_size=2, local_world_size=2)
    with pytest.raises(errors.NoDeviceError, match="simulate"):
        ModelBuilder()


def test_positions_past_the_pages_are_named():
    """A table with fewer pages than ``kv_lens`` asks for."""

    def body():
        random = Random(12)
        q, cache, out = random(1, 1, 2, 16), random(4, 4, 1, 16), random(1, 1, 2, 16)
        tables = torch.arange(4, dtype=torch.int32).view(1, 4)
        made = ModelBuilder(num_sms=2)
        made.make_flash_decode(q, cache, cache.clone(), tables, torch.tensor([17], dtype=torch.int32), out)
        made.compile()
        made.run()
        triton_dist.synchronize()

    with pytest.raises(errors.OutOfBoundsError, match="flash_decode"):
        triton_dist.simulate(body, world_size=1)


def joined(made: ModelBuilder) -> list[str]:
    return [operation.name for operation in builder._joined(made._operations, made._machine)]


def test_only_what_follows_from_a_sum_is_joined_with_it():
    def body():
        random = Random(13)
        a, b, weight, rows = random(4, 32), random(4, 32), random(32), random(5, 32)
        names = []

        def made(lhs, total, x, out):
            program = ModelBuilder(num_sms=2)
            program.make_add(lhs, b, total)
            program.make_rms_norm(x, weight, out)
            names.append(joined(program))

        total = random(4, 32)
        made(a, total, total, random(4, 32))
        made(a, total, total, b)
        made(a, total, a, random(4, 32))
        made(a, a, a, a)
        made(rows[1:], total, total, rows[:4])
        return names

    together, over_an_input, other, in_place, rows_apart = triton_dist.simulate(body, world_size=1)[0]
    assert together == over_an_input == ["add_rms_norm"]
    assert other == in_place == rows_apart == ["add", "rms_norm"]


def test_only_what_follows_from_a_product_is_joined_with_it():
    """Not where it is of other columns, of many rows, behind something else, or stored where the product still reads or writes."""

    def body():
        random = Random(17)
        names, weight, many = [], random(80, 40), random(70, 40)
        x, wide, act = many[:4], random(4, 80), random(4, 40)

        def made(x, wide, act, gate_up=None, between=False):
            program = ModelBuilder(num_sms=2)
            program.make_fc1(x, weight, wide)
            if between:
                program.make_add(x, x, x)
            program.make_silu_mul_up(wide if gate_up is None else gate_up, act)
            names.append(joined(program))

        made(x, wide, act)
        made(x, wide, act, gate_up=wide.clone())
        made(many, random(70, 80), random(70, 40))
        made(x, wide, act, between=True)
        made(x, wide, x)
        made(x, wide, wide.flatten()[160:].view(4, 40))
        made(x, wide, weight[:4])
        return names

    together, *apart, between_, over_x, over_wide, over_weight = triton_dist.simulate(body, world_size=1)[0]
    assert together == ["mlp_fc1_silu_mul_up"] and between_ == ["mlp_fc1", "add", "silu_mul_up"]
    assert all(names == ["mlp_fc1", "silu_mul_up"] for names in (*apart, over_x, over_wide, over_weight))


def counter_of(made: ModelBuilder) -> torch.Tensor:
    """The words in which the present plan of a program of one decoding counts the shares that have arrived."""
    return made._kept[-1][2][0].tensors[-1]


def counted_wrong() -> list[float]:
    """A run that ended half way has left shares counted; the program is compiled again, and counts anew."""
    random = Random(18)
    q, cache, values, out = random(2, 1, 2, 16), random(40, 16, 1, 16), random(40, 16, 1, 16), random(2, 1, 2, 16)
    tables, lens = random.permutation(40).view(2, 20), torch.tensor([300, 17], dtype=torch.int32, device=q.device)
    made = ModelBuilder(num_sms=8)
    made.make_flash_decode(q, cache, values, tables, lens, out)
    made.compile()
    counter_of(made).fill_(1)
    made.compile()
    counter = counter_of(made)
    assert not counter.any()
    counter.fill_(2**31 - 4)  # it wraps around
    wrong = []
    for _ in range(2):
        out.fill_(float("nan"))
        made.run()
        triton_dist.synchronize()
        for sequence, count in enumerate(lens.tolist()):
            k, v = (part[tables[sequence].long()].flatten(0, 1)[:count][None] for part in (cache, values))
            wrong.append(relative_error(out[sequence : sequence + 1], references.attention(q[sequence : sequence + 1], k, v)))
        assert counter[:2].eq(counter[0]).all() and counter[0] != 2**31 - 4, "all shares of all heads have arrived"
    return wrong


def test_what_a_run_has_left_is_cleared(world):
    assert max(world(counted_wrong, 1)[0]) < 1e-5


def overlapping() -> str:
    """Results in place of the queries; then the results of one head where another one's queries are."""
    random = Random(19)
    heads, cache, tables = random(6, 16), random(40, 16, 2, 16), random.permutation(40).view(1, 40)
    lens = torch.tensor([5], dtype=torch.int32, device=heads.device)
    q, moved = heads[:4].view(1, 1, 4, 16), heads[2:].view(1, 1, 4, 16)
    made = ModelBuilder(num_sms=8)
    made.make_flash_decode(q, cache, cache.clone(), tables, lens, q)
    made.compile()
    made.reset()
    made.make_flash_decode(q, cache, cache.clone(), tables, lens, moved)
    with pytest.raises(errors.InvalidArgumentError) as raised:
        made.compile()
    return str(raised.value)


def test_shares_of_one_head_may_meet_and_others_not(world):
    assert "flash_decode: tile" in world(overlapping, 1)[0]
