"""TPMLP against torch in float64: both forms, forward and backward, on every world size; and what its twins do wrong.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import copy
import types

import pytest
import torch
import torch.distributed as dist
from torch import nn

import triton_dist
from tests.differences import relative_error
from tests.layers.references import gradient_error, leaf, mlp_reference, mlp_state
from triton_dist import errors
from triton_dist.layers import TPMLP, ColumnParallelLinear, TPAttention, parallel_linear, placement, tp_mlp
from triton_dist.runtime.team import Team

HIDDEN, INTERMEDIATE = 24, 48
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 8e-2}
"""Each of the three steps rounds, and an input of relu that rounds to 0 or away from it changes a gradient by more."""


def both_ways(form: str, shape: tuple[int, ...], dtype: torch.dtype, calls: int = 2, **options) -> float:
    """Forward without autograd, then forward and backward; the worst relative error of results and gradients of this rank.

    form: "scattered" or "replicated". shape: of this rank's x, or of all ranks', without the features.
    """
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    scattered = form == "scattered"
    layer = TPMLP(HIDDEN, INTERMEDIATE, sequence_parallel=scattered, dtype=dtype, **options)
    state = mlp_state(HIDDEN, INTERMEDIATE, layer.gated, layer.down.bias is not None, dtype)
    layer.load_full_state(state)
    worst = 0.0
    for call in range(calls):
        parts = [leaf(10 * call + other, *shape, HIDDEN, dtype=dtype) for other in range(size)]
        grads = [leaf(50 + 10 * call + other, *shape, HIDDEN, dtype=dtype) for other in range(size)]
        everything, grad = (torch.cat(parts), torch.cat(grads)) if scattered else (parts[0], grads[0])
        wide = everything.double().requires_grad_()
        full = {name: value.double().requires_grad_() for name, value in state.items()}
        expected = mlp_reference(wide, full, layer.activation, layer.gated)
        expected.backward(grad.double())
        own = slice(rank * shape[0], (rank + 1) * shape[0]) if scattered else slice(None)
        x = everything[own].to(device).requires_grad_()
        with torch.no_grad():
            first = layer(x)
        layer.zero_grad()
        out = layer(x)
        out.backward(grad[own].to(device))
        worst = max(worst, relative_error(first, expected[own]), relative_error(out, expected[own]))
        worst = max(worst, relative_error(x.grad, wide.grad[own]), gradient_error(layer, {n: v.grad for n, v in full.items()}))
    return worst


FORMS = ("scattered", "replicated")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_an_mlp_matches_torch(world, world_size, form):
    found = world(both_ways, world_size, args=(form, (7,), torch.float32), seed=world_size)
    assert max(found) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh", "relu"])
def test_an_mlp_of_every_activation_and_dtype(world, activation, dtype, form):
    """With biases, three dimensions, and an odd number of rows on each rank."""
    gated = activation in ("silu", "gelu")
    found = world(both_ways, 2, args=(form, (5, 3), dtype), kwargs={"activation": activation, "gated": gated, "bias": True, "calls": 1})
    assert max(found) < TOLERANCE[dtype]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_an_mlp_has_no_data_race(world_size, form):
    for seed, schedule in ((0, "random"), (1, "straggler"), (2, "late")):
        options = {"seed": seed, "schedule": schedule, "check": "race"}
        found = triton_dist.simulate(both_ways, world_size, args=(form, (5,), torch.float32), kwargs={"bias": True}, **options)
        assert max(found) < TOLERANCE[torch.float32]


def calls_by_turns() -> float:
    """One layer in both forms, with other numbers of rows each time, and a second layer in between: memory is shared and grows."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    layers, worst = [], 0.0
    for gated in (True, False):
        layers.append(TPMLP(HIDDEN, INTERMEDIATE, gated=gated))
        layers[-1].load_full_state(mlp_state(HIDDEN, INTERMEDIATE, gated, False, torch.float32))
    checks = []
    with torch.no_grad():
        for call, (rows, scattered) in enumerate(((3, True), (9, True), (1, False), (40, True), (40, False), (3, True))):
            for layer in layers:
                parts = [leaf(10 * call + (other if scattered else 0), rows, HIDDEN) for other in range(size)]
                out = layer(parts[rank].to(device), sequence_parallel=scattered)
                checks.append((layer, parts[rank], out))
    for layer, x, out in checks:
        state = mlp_state(HIDDEN, INTERMEDIATE, layer.gated, False, torch.float64)
        state = {name: value.float().double() for name, value in state.items()}
        worst = max(worst, relative_error(out, mlp_reference(x.double(), state, "silu", layer.gated)))
    return worst


@pytest.mark.parametrize("world_size", [2, 4])
def test_an_mlp_in_both_forms_by_turns(world, world_size):
    assert max(world(calls_by_turns, world_size)) < TOLERANCE[torch.float32]


def by_columns() -> float:
    """x lies in memory by columns, the result goes where it is told to, and memory is made in inference mode and used outside of it."""
    device, state = triton_dist.device(), mlp_state(HIDDEN, INTERMEDIATE, True, False, torch.float32)
    layer = TPMLP(HIDDEN, INTERMEDIATE, sequence_parallel=False)
    layer.load_full_state(state)
    x, out = leaf(1, HIDDEN, 5).to(device).t(), torch.full((5, HIDDEN), float("nan"), device=device)
    with torch.inference_mode():
        layer(x)
    with torch.no_grad():
        found = layer(x)
        assert layer(x, out=out) is out
    expected = mlp_reference(x.cpu().double(), {name: value.double() for name, value in state.items()}, "silu", True)
    return max(relative_error(found, expected), relative_error(out, expected))


def test_an_mlp_of_rows_that_are_columns_in_memory(world):
    assert max(world(by_columns, 2)) < TOLERANCE[torch.float32]


def on_two_streams(calls: int = 3) -> float:
    """Two layers at the same time, each on a stream of its own."""
    rank, device = triton_dist.rank(), triton_dist.device()
    layer, state = TPMLP(HIDDEN, INTERMEDIATE), mlp_state(HIDDEN, INTERMEDIATE, True, False, torch.float32)
    layer.load_full_state(state)
    streams = [triton_dist.Stream(), triton_dist.Stream()]
    x = [leaf(10 * place + rank, 6, HIDDEN).to(device) for place in range(2)]
    outs = []
    for stream in streams:
        stream.wait_stream(triton_dist.current_stream())
    with torch.no_grad():
        for _ in range(calls):
            for place, stream in enumerate(streams):
                with triton_dist.stream(stream):
                    outs.append((place, layer(x[place])))
    triton_dist.synchronize()
    wide = {name: value.double() for name, value in state.items()}
    return max(relative_error(out, mlp_reference(x[place].cpu().double(), wide, "silu", True)) for place, out in outs)


def test_mlps_on_two_streams(world):
    assert max(world(on_two_streams, 2)) < TOLERANCE[torch.float32]


def from_torch(gated: bool) -> tuple[float, bool]:
    """From full layers, there and back; through ``state_dict``; and a copy."""
    size, device = triton_dist.world_size(), triton_dist.device()
    state = mlp_state(HIDDEN, INTERMEDIATE, gated, True, torch.float32)
    full = {"up": nn.Linear(HIDDEN, INTERMEDIATE), "down": nn.Linear(INTERMEDIATE, HIDDEN)}
    full |= {"gate": nn.Linear(HIDDEN, INTERMEDIATE)} if gated else {}
    for name, linear in full.items():
        linear.load_state_dict({kind: state[f"{name}_proj.{kind}"] for kind in ("weight", "bias")})
    layer = TPMLP.from_linear(**full, sequence_parallel=False, activation="relu")
    gathered = layer.full_state()
    same = gathered.keys() == state.keys() and all(torch.equal(gathered[name].cpu(), state[name]) for name in state)
    other = TPMLP(HIDDEN, INTERMEDIATE, gated=gated, bias=True, sequence_parallel=False, activation="relu")
    other.load_state_dict(layer.state_dict())
    same &= list(other.state_dict()) == ["gate_up.weight", "gate_up.bias", "down.weight", "down.bias"]
    same &= tuple(other.gate_up.weight.shape) == ((2 if gated else 1) * INTERMEDIATE // size, HIDDEN)
    copied = copy.deepcopy(other)
    same &= copied.down.placement is other.down.placement and copied.down.weight is not other.down.weight
    x = leaf(5, 3, HIDDEN)
    wide = {name: value.double() for name, value in state.items()}
    expected = mlp_reference(x.double(), wide, "relu", gated)
    with torch.no_grad():
        return max(relative_error(each(x.to(device)), expected) for each in (layer, other, copied)), same


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("world_size", [1, 3])
def test_states_of_an_mlp(world, world_size, gated):
    for error, same in world(from_torch, world_size, args=(gated,)):
        assert error < TOLERANCE[torch.float32] and same


def in_rows_of_a_mesh() -> float:
    """Two layers side by side, each over one dimension of a mesh, by all names of a group; the ranks of a row have parts of one x."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    rank, device = triton_dist.rank(), triton_dist.device()
    state = mlp_state(HIDDEN, INTERMEDIATE, True, False, torch.float32)
    wide = {name: value.double() for name, value in state.items()}
    worst = 0.0
    for group in ((mesh, "tensor"), mesh["tensor"], mesh.get_group("tensor"), triton_dist.make_team((mesh, "tensor"))):
        layer = TPMLP(HIDDEN, INTERMEDIATE, group=group)
        layer.load_full_state(state)
        x = leaf(rank, 4, HIDDEN).to(device).requires_grad_()
        out = layer(x)
        out.sum().backward()
        leaves = x.detach().cpu().double().requires_grad_()
        expected = mlp_reference(leaves, wide, "silu", True)
        expected.sum().backward()
        worst = max(worst, relative_error(out, expected), relative_error(x.grad, leaves.grad))
    return worst


@pytest.mark.parametrize("world_size", [4])
def test_an_mlp_over_a_dimension_of_a_mesh(world, world_size):
    assert max(world(in_rows_of_a_mesh, world_size)) < TOLERANCE[torch.float32]


def made(**options) -> TPMLP:
    return TPMLP(**{"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, **options})


def mesh_of_two_dimensions():
    dist.init_process_group("gloo")
    return dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tensor"))


def with_rank_order(order: list[int]) -> TPMLP:
    dist.init_process_group("gloo")
    return made(group=dist.DeviceMesh("cpu", order))


STATE = mlp_state(HIDDEN, INTERMEDIATE, True, False, torch.float32)
WRONG_SHAPE = {**STATE, "up_proj.weight": torch.zeros(INTERMEDIATE // 2, HIDDEN)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(intermediate_size=47), "intermediate_size=47 can't be split evenly over the 2 ranks of the group [0, 1]"),
        (lambda: made(intermediate_size=0), "must be a positive integer"),
        (lambda: made(activation="tanh"), "TPMLP: the activation 'tanh' is not known"),
        (lambda: made(dtype=torch.float64), "dtype=torch.float64 is not one of"),
        (lambda: made(group=3), "group=3 must be a torch.distributed process group"),
        (lambda: made(group=mesh_of_two_dimensions()), "the DeviceMesh has 2 dimensions ('data', 'tensor'); pass (mesh, name of one"),
        (lambda: made(group=(mesh_of_two_dimensions(), "pipe")), "no dimension 'pipe'"),
        (lambda: with_rank_order([1, 0]), "the DeviceMesh has ranks in the order [1, 0]"),
        (lambda: made()(torch.randn(HIDDEN)), "it has to be (rows, ..., 24) torch.float32"),
        (lambda: made()(torch.randn(4, HIDDEN + 1)), "x is (4, 25)"),
        (lambda: made()(torch.randn(4, HIDDEN).half()), "x is (4, 24) torch.float16"),
        (lambda: made()(torch.randn(4, HIDDEN), out=torch.empty(4, HIDDEN)), "no gradient with out="),
        (lambda: made().load_full_state([STATE]), "has to be a dict of tensors by name, not list"),
        (lambda: made(bias=True).load_full_state(STATE), "lacks ['down_proj.bias', 'gate_proj.bias', 'up_proj.bias']"),
        (lambda: made(gated=False).load_full_state(STATE), "has ['gate_proj.weight'] besides"),
        (lambda: made().load_full_state(WRONG_SHAPE), "up_proj.weight of the full state is (24, 24)"),
        (lambda: TPMLP.from_linear(up=nn.Linear(4, 4), down=nn.Identity()), "down has to be an nn.Linear, not Identity"),
        (lambda: TPMLP.from_linear(up=nn.Linear(4, 4), down=nn.Linear(4, 4, bias=False)), "some of the layers have a bias"),
        (lambda: made().down(torch.randn(5, INTERMEDIATE // 2)), "can't be shared evenly by 2 ranks; append 1 of zeros"),
    ],
)
def test_bad_input_of_an_mlp(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def test_an_mlp_of_another_group():
    def call() -> None:
        dist.init_process_group("gloo")
        group = dist.new_group([0, 1])
        made(group=group if triton_dist.rank() < 2 else Team(0, (0, 1)))

    with pytest.raises(errors.NotInTeamError, match=r"rank 2 is not in the team of ranks \[0, 1\]"):
        triton_dist.simulate(call, 3)


def test_ranks_that_torch_numbers_otherwise(monkeypatch):
    def call() -> None:
        dist.init_process_group("gloo")
        made(group=dist.group.WORLD)

    def other(what: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(rank=1 - triton_dist.rank(), device=triton_dist.device())

    monkeypatch.setattr(placement, "require_world", other)
    with pytest.raises(errors.InvalidArgumentError, match=r"is rank \d of torch.distributed and rank \d of triton_dist"):
        triton_dist.simulate(call, 2)


def test_an_mlp_needs_a_world():
    with pytest.raises(errors.NotInitializedError, match="simulate"):
        made()


# Twins: right but for one place, and caught.


def outcomes(body, *args, **options) -> set[str]:
    """What goes wrong over several schedules under the race check: "wrong", "right" or the name of an error."""
    seen = set()
    for seed in range(4):
        try:
            found = triton_dist.simulate(body, 2, args=args, seed=seed, check="race", **options)
            seen.add("wrong" if max(found) > TOLERANCE[torch.float32] else "right")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    return seen


def test_an_activation_that_does_not_wait_for_the_product_is_a_race(monkeypatch):
    """It runs on a stream of its own, and the second product waits for it."""
    activate = tp_mlp.activate

    def early(*args, **options):
        side = triton_dist.Stream()
        with triton_dist.stream(side):
            out = activate(*args, **options)
        triton_dist.current_stream().wait_stream(side)
        return out

    monkeypatch.setattr(tp_mlp, "activate", early)
    assert "DataRaceError" in outcomes(both_ways, "scattered", (5,), torch.float32)


def test_memory_that_two_streams_share_is_a_race(monkeypatch):
    """Were it one memory for the group instead of one for the group and stream."""
    kept: dict = {}

    def shared(what, key, make):
        place = (triton_dist.rank(), what, key)
        if place not in kept:
            kept[place] = make()
        return kept[place]

    monkeypatch.setattr(placement, "workspace", shared)
    found = set()
    for seed in range(4):
        kept.clear()
        try:
            triton_dist.simulate(on_two_streams, 2, seed=seed, check="race")
            found.add("right")
        except errors.TritonDistError as error:
            found.add(type(error).__name__)
    assert "DataRaceError" in found


def test_results_that_share_memory_are_wrong(monkeypatch):
    """The activation would write over what it still reads."""
    scratch = placement.Placement.scratch
    monkeypatch.setattr(placement.Placement, "scratch", lambda self, name, shape, dtype: scratch(self, "one", shape, dtype))
    assert outcomes(both_ways, "scattered", (5,), torch.float32) & {"wrong", "DataRaceError"}


def test_a_bias_whose_gradient_is_not_added_up_is_wrong(monkeypatch):
    monkeypatch.setattr(parallel_linear.SummedGradient, "apply", lambda x, group: x)
    found = triton_dist.simulate(both_ways, 2, args=("scattered", (5,), torch.float32), kwargs={"bias": True})
    assert max(found) > 0.1


def hooked(where: str, kind: str) -> bool:
    """What a hook keeps stays as it was: later calls have no memory in common with it."""
    layer = TPMLP(HIDDEN, INTERMEDIATE, bias=True, sequence_parallel=False)
    attention = TPAttention(HIDDEN, 4, sequence_parallel=False)
    kept, values = [], []

    def keep(module, given, made=None):
        tensor = given[0] if made is None else made
        kept.append(tensor)
        values.append(tensor.clone())

    module = {"gate_up": layer.gate_up, "down": layer.down, "qkv": attention.qkv}.get(where)
    if module is None:
        handle = nn.modules.module.register_module_forward_hook(keep)
    else:
        handle = module.register_forward_hook(keep) if kind == "after" else module.register_forward_pre_hook(keep)
    try:
        with torch.no_grad():
            for call in range(3):
                x = torch.full((4, HIDDEN), call + 1.0, device=triton_dist.device())
                layer(x), attention(x)
    finally:
        handle.remove()
    triton_dist.synchronize()
    return len(kept) >= 3 and all(torch.equal(tensor, value) for tensor, value in zip(kept, values, strict=True))


@pytest.mark.parametrize(
    ("where", "kind"), [("gate_up", "after"), ("down", "before"), ("down", "after"), ("qkv", "after"), ("everywhere", "after")]
)
def test_hooks_may_keep_what_they_see(where, kind):
    assert triton_dist.simulate(hooked, 1, args=(where, kind)) == [True]


@pytest.mark.parametrize(
    ("out", "grad", "message"),
    [
        (torch.empty(4, 24), True, "no gradient with out="),
        (torch.empty(4, 23), False, "it has to be"),
        (torch.empty(4, 24, dtype=torch.float16), False, "it has to be"),
        (torch.empty(24, 4).t(), False, "contiguous"),
        (3, False, "has to be a tensor"),
    ],
)
def test_outputs_of_a_replicated_product(out, grad, message):
    def call():
        with torch.set_grad_enabled(grad):
            ColumnParallelLinear(HIDDEN, 48, sequence_parallel=False)(torch.ones(4, HIDDEN), out=out)

    with pytest.raises(errors.InvalidArgumentError, match=message):
        triton_dist.simulate(call, 2)
