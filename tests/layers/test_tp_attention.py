"""TPAttention against attention written out in float64: both forms, forward and backward, and decoding with a cache.

Tests that take ``world`` run on simulated ranks here, and in ``tests/gpu`` on GPUs.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

import triton_dist
from tests.differences import relative_error
from tests.layers.references import attention_reference, attention_state, gradient_error, leaf
from triton_dist import errors
from triton_dist.layers import TPAttention, tp_attention

HIDDEN, HEAD = 24, 4
TOLERANCE = {torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 8e-2}
FORMS = ("scattered", "replicated")


def layer_and_state(
    heads: int, kv_heads: int, dtype: torch.dtype = torch.float32, **options
) -> tuple[TPAttention, dict[str, torch.Tensor]]:
    layer = TPAttention(HIDDEN, heads, kv_heads, head_dim=HEAD, dtype=dtype, **options)
    state = attention_state(HIDDEN, heads, kv_heads, HEAD, layer.qkv.bias is not None, dtype)
    layer.load_full_state(state)
    return layer, state


def both_ways(form: str, shape: tuple[int, ...], heads: tuple[int, int], dtype: torch.dtype = torch.float32, **options) -> float:
    """Forward without autograd, then forward and backward; the worst relative error of results and gradients of this rank."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    scattered = form == "scattered"
    layer, state = layer_and_state(*heads, dtype, sequence_parallel=scattered, **options)
    parts = [leaf(other, *shape, HIDDEN, dtype=dtype) for other in range(size)]
    grads = [leaf(50 + other, *shape, HIDDEN, dtype=dtype) for other in range(size)]
    everything, grad = (torch.cat(parts), torch.cat(grads)) if scattered else (parts[0], grads[0])
    wide = everything.double().requires_grad_()
    full = {name: value.double().requires_grad_() for name, value in state.items()}
    expected = attention_reference(wide, full, HEAD, layer.causal, layer.rope_theta)
    expected.backward(grad.double())
    own = slice(rank * shape[0], (rank + 1) * shape[0]) if scattered else slice(None)
    x = everything[own].to(device).requires_grad_()
    with torch.no_grad():
        first = layer(x)
    out = layer(x)
    out.backward(grad[own].to(device))
    worst = max(relative_error(first, expected[own]), relative_error(out, expected[own]), relative_error(x.grad, wide.grad[own]))
    return max(worst, gradient_error(layer, {name: value.grad for name, value in full.items()}))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("world_size", "heads"), [(1, (3, 1)), (2, (6, 2)), (3, (6, 3)), (4, (8, 4)), (8, (8, 8))])
def test_an_attention_matches_torch(world, world_size, heads, form):
    found = world(both_ways, world_size, args=(form, (5, 3), heads), kwargs={"bias": True, "rope_theta": 100.0}, seed=world_size)
    assert max(found) < TOLERANCE[torch.float32]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("options", [{}, {"causal": False}, {"bias": True}, {"rope_theta": 50.0}], ids=str)
def test_an_attention_of_every_kind_and_dtype(world, options, dtype, form):
    found = world(both_ways, 2, args=(form, (7,), (4, 2), dtype), kwargs=options)
    assert max(found) < TOLERANCE[dtype]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world_size", [2, 3])
def test_an_attention_has_no_data_race(world_size, form):
    for seed, schedule in ((0, "random"), (1, "straggler")):
        options = {"seed": seed, "schedule": schedule, "check": "race"}
        found = triton_dist.simulate(both_ways, world_size, args=(form, (5,), (12, 6)), kwargs={"bias": True, "rope_theta": 9.0}, **options)
        assert max(found) < TOLERANCE[torch.float32]


def decoded(static: bool, causal: bool) -> float:
    """A sequence parallel prefill, then tokens one by one and three at once, replicated; against attention to the whole sequence."""
    rank, size, device = triton_dist.rank(), triton_dist.world_size(), triton_dist.device()
    layer, state = layer_and_state(4, 2, causal=causal, rope_theta=100.0)
    cache = layer.make_cache(3, 20, static=static)
    wide = {name: value.double() for name, value in state.items()}
    prompt, rest = leaf(1, 4 * size, 3, HIDDEN), leaf(2, 6, 3, HIDDEN)
    whole, worst = torch.cat([prompt, rest]), 0.0

    def compare(out: torch.Tensor, begin: int, end: int, first: int) -> float:
        return relative_error(
            out, attention_reference(whole[:end].double(), wide, HEAD, causal, 100.0)[begin:end][first : first + len(out)]
        )

    with torch.no_grad():
        for _ in range(2):
            cache.reset()
            out = layer(prompt[4 * rank : 4 * rank + 4].to(device), cache=cache)
            worst, seen = max(worst, compare(out, 0, len(prompt), 4 * rank)), len(prompt)
            for count in (1, 1, 3, 1):
                out = layer(whole[seen : seen + count].to(device), cache=cache, sequence_parallel=False)
                worst, seen = max(worst, compare(out, seen, seen + count, 0)), seen + count
        assert int(cache.length) == seen
    return worst


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("static", [False, True], ids=["growing", "static"])
def test_decoding_with_a_cache(world, static, causal):
    assert max(world(decoded, 2, args=(static, causal))) < TOLERANCE[torch.float32]


def at_positions() -> float:
    """Tokens of which the second half begins anew, as in a packed sequence."""
    layer, state = layer_and_state(4, 2, rope_theta=100.0, sequence_parallel=False)
    x, positions = leaf(1, 6, HIDDEN), torch.tensor([0, 1, 2, 0, 1, 2])
    wide = {name: value.double() for name, value in state.items()}
    with torch.no_grad():
        out = layer(x.to(triton_dist.device()), positions=positions.to(triton_dist.device()))
    return relative_error(out, attention_reference(x.double(), wide, HEAD, True, 100.0, positions))


def test_an_attention_at_given_positions(world):
    assert max(world(at_positions, 2)) < TOLERANCE[torch.float32]


def in_inference_mode_first() -> float:
    """What is kept between calls is made in that mode, then used outside of it, in a cache and in a backward."""
    layer, state = layer_and_state(4, 2, rope_theta=100.0, sequence_parallel=False)
    x = leaf(1, 6, HIDDEN)
    expected = attention_reference(x.double(), {name: value.double() for name, value in state.items()}, HEAD, True, 100.0)
    with torch.inference_mode():
        cache = layer.make_cache(1, 8)
        outs = [layer(x[:5].to(triton_dist.device()), cache=cache)]
    with torch.no_grad():
        outs.append(layer(x[5:].to(triton_dist.device()), cache=cache))
    out = layer(x.to(triton_dist.device()))
    out.sum().backward()
    return max(relative_error(torch.cat(outs), expected), relative_error(out, expected))


def test_an_attention_in_inference_mode_first(world):
    assert max(world(in_inference_mode_first, 2)) < TOLERANCE[torch.float32]


def from_torch() -> tuple[float, bool]:
    """From full layers, there and back, and through ``state_dict``; over a dimension of a mesh."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (1, triton_dist.world_size()), mesh_dim_names=("data", "tensor"))
    state = attention_state(HIDDEN, 6, 3, HEAD, True, torch.float32)
    del state["o_proj.bias"]
    full = {
        name: nn.Linear(*state[f"{key}.weight"].shape[::-1], bias=name != "out")
        for name, key in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("out", "o_proj"))
    }
    for name, linear in full.items():
        key = "o_proj" if name == "out" else f"{name}_proj"
        linear.load_state_dict({kind: state[f"{key}.{kind}"] for kind in linear.state_dict()})
    options = {"group": (mesh, "tensor"), "sequence_parallel": False}
    layer = TPAttention.from_linear(**full, num_heads=6, **options)
    gathered = layer.full_state()
    same = gathered.keys() == state.keys() and all(torch.equal(gathered[name].cpu(), state[name]) for name in state)
    other = TPAttention(HIDDEN, 6, 3, head_dim=HEAD, bias=True, out_bias=False, **options)
    other.load_state_dict(layer.state_dict())
    same &= list(other.state_dict()) == ["qkv.weight", "qkv.bias", "out.weight"]
    x = leaf(5, 3, HIDDEN)
    expected = attention_reference(x.double(), {name: value.double() for name, value in state.items()}, HEAD, True, None)
    with torch.no_grad():
        return max(relative_error(each(x.to(triton_dist.device())), expected) for each in (layer, other)), same


@pytest.mark.parametrize("world_size", [1, 3])
def test_states_of_an_attention(world, world_size):
    for error, same in world(from_torch, world_size):
        assert error < TOLERANCE[torch.float32] and same


def made(**options) -> TPAttention:
    return TPAttention(**{"hidden_size": HIDDEN, "num_heads": 4, "head_dim": HEAD, **options})


def cached(batch: int = 1, max_length: int = 4, tokens: int = 2, **options) -> None:
    layer = made(sequence_parallel=False)
    with torch.no_grad():
        layer(torch.randn(tokens, HIDDEN), cache=layer.make_cache(batch, max_length, **options))


def linears(**others) -> dict:
    return {"q": nn.Linear(8, 8), "k": nn.Linear(8, 8), "v": nn.Linear(8, 8), "out": nn.Linear(8, 8), "num_heads": 2, **others}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made(num_heads=3), "TPAttention: num_heads=3 can't be split evenly over the 2 ranks of the group [0, 1]"),
        (lambda: made(num_heads=4, num_kv_heads=1), "num_kv_heads=1 can't be split evenly"),
        (lambda: made(num_heads=4, num_kv_heads=3), "num_heads=4 is not a multiple of num_kv_heads=3"),
        (lambda: made(num_heads=0), "num_heads=0 must be a positive integer"),
        (lambda: TPAttention(26, 4), "hidden_size=26 is not a multiple of num_heads=4; pass head_dim="),
        (lambda: made(head_dim=3, rope_theta=10.0), "the head's size even"),
        (lambda: made(rope_theta=0.0), "the base has to be above 0"),
        (lambda: made(group="tensor"), "group='tensor' must be a torch.distributed process group"),
        (lambda: made()(torch.randn(HIDDEN)), "it has to be (tokens, hidden_size) or"),
        (lambda: made()(torch.randn(4, 8)), "x is (4, 8)"),
        (lambda: made(rope_theta=1.0)(torch.randn(4, HIDDEN), positions=torch.arange(4)), "an integer for each of 8 tokens"),
        (lambda: made()(torch.randn(4, HIDDEN), cache=made().make_cache(1, 8)), "a cache keeps no gradients"),
        (lambda: made().make_cache(0, 8), "KVCache: batch=0 must be a positive integer"),
        (lambda: cached(batch=2), "x has a batch of 1, but the cache was made for 2"),
        (lambda: cached(tokens=5, static=True), "5 tokens more than 0 are too many for max_length=4"),
        (lambda: cached(tokens=5), "5 tokens more than 0 are too many for max_length=4"),
        (lambda: made().load_full_state({}), "lacks ['k_proj.weight', 'o_proj.weight', 'q_proj.weight', 'v_proj.weight']"),
        (lambda: TPAttention.from_linear(**linears(k=nn.Identity())), "k has to be an nn.Linear"),
        (lambda: TPAttention.from_linear(**linears(k=nn.Linear(8, 8, bias=False))), "some of q, k and v have a bias"),
        (lambda: TPAttention.from_linear(**linears(num_heads=3)), "not whole heads for num_heads=3"),
    ],
)
def test_bad_input_of_an_attention(make, message):
    with pytest.raises(errors.InvalidArgumentError) as caught:
        triton_dist.simulate(make, 2)
    assert message in str(caught.value)


def test_a_growing_cache_is_not_captured(monkeypatch):
    monkeypatch.setattr("triton_dist.layers.kv_cache.in_capture", lambda what: True)
    triton_dist.simulate(cached, 2, kwargs={"static": True})
    with pytest.raises(errors.CaptureError, match=r"make_cache\(..., static=True\)"):
        triton_dist.simulate(cached, 2)


def test_attention_that_does_not_wait_for_the_heads_is_a_race(monkeypatch):
    """A twin: attention on a stream of its own."""
    attend = tp_attention.scaled_dot_product_attention

    def early(*args, **options):
        side = triton_dist.Stream()
        with triton_dist.stream(side):
            out = attend(*args, **options)
        triton_dist.current_stream().wait_stream(side)
        return out

    monkeypatch.setattr(tp_attention, "scaled_dot_product_attention", early)
    seen = set()
    for seed in range(4):
        try:
            triton_dist.simulate(both_ways, 2, args=("scattered", (5,), (4, 2)), seed=seed, check="race")
            seen.add("right")
        except errors.TritonDistError as error:
            seen.add(type(error).__name__)
    assert "DataRaceError" in seen


def without_tokens(form: str, grad: bool) -> bool:
    layer = TPAttention(HIDDEN, 4, rope_theta=100.0, bias=True, sequence_parallel=form == "scattered")
    shapes = [(0, HIDDEN), (0, 2, HIDDEN), (2, 0, HIDDEN)]
    with torch.set_grad_enabled(grad):
        return all(layer(torch.empty(shape, device=triton_dist.device())).shape == shape for shape in shapes)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("form", ["scattered", "replicated"])
def test_no_tokens_and_no_sequences(world, form, grad):
    assert world(without_tokens, 2, args=(form, grad)) == [True] * 2


@pytest.mark.parametrize(
    ("positions", "message"),
    [(torch.arange(8.0), "an integer for each"), ([0] * 8, "has to be a tensor"), (torch.arange(7), "for each of 8 tokens")],
)
@pytest.mark.parametrize("rope_theta", [None, 100.0])
def test_positions_are_looked_at_with_and_without_rotation(positions, message, rope_theta):
    def call():
        TPAttention(HIDDEN, 4, rope_theta=rope_theta)(torch.randn(4, HIDDEN), positions=positions)

    with pytest.raises(errors.InvalidArgumentError, match=message):
        triton_dist.simulate(call, 2)


def test_a_cache_of_another_layer():
    def call(heads, dtype):
        layer = TPAttention(HIDDEN, 4, sequence_parallel=False)
        cache = TPAttention(HIDDEN, heads, sequence_parallel=False, dtype=dtype).make_cache(1, 4)
        with torch.no_grad():
            layer(torch.randn(2, 1, HIDDEN), cache=cache)

    for heads, dtype in ((2, torch.float32), (4, torch.float16)):
        with pytest.raises(errors.InvalidArgumentError, match="the cache was made for"):
            triton_dist.simulate(call, 2, args=(heads, dtype))
