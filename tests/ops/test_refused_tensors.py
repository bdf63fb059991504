"""Tensors that an operator can't take are refused by name, on every rank, before anything is written."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from triton_dist.errors import InvalidArgumentError
from triton_dist.layers import TPMLP, ColumnParallelLinear, RowParallelLinear, TPAttention
from triton_dist.ops import activate, ag_gemm, all_gather, all_reduce, all_to_all, broadcast, gemm_ar, gemm_rs, reduce_scatter, rotary
from triton_dist.ops.tensors import overlap

A, B, BIAS = torch.ones(4, 4), torch.ones(4, 4), torch.ones(4)
FP8 = A.to(torch.float8_e4m3fn)
ONE = torch.ones(1)
POSITIONS, FREQUENCIES = torch.arange(4), torch.ones(2)
COLLECTIVES = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
}
OPERANDS = {
    **{f"{name} x": (operator, (A,), {}, 0) for name, operator in COLLECTIVES.items()},
    **{f"{name} out": (COLLECTIVES[name], (A,), {"out": A.clone()}, "out") for name in ("all_reduce", "all_to_all", "broadcast")},
    **{
        f"{operator.__name__} {place}": (operator, (A, B), options, place)
        for operator in (ag_gemm, gemm_rs, gemm_ar)
        for place, options in ((0, {}), (1, {}), ("out", {"out": torch.empty(4, 4)}))
    },
    "gemm_rs bias": (gemm_rs, (A, B), {"bias": BIAS}, "bias"),
    "gemm_ar bias": (gemm_ar, (A, B), {"bias": BIAS}, "bias"),
    "gemm_ar scale_a": (gemm_ar, (FP8, FP8), {"scale_a": ONE, "scale_b": ONE}, "scale_a"),
    "activate x": (activate, (A,), {}, 0),
    "activate bias": (activate, (A, BIAS), {}, 1),
    "activate out": (activate, (A,), {"out": torch.empty(4, 2)}, "out"),
    "rotary x": (rotary, (A, POSITIONS, FREQUENCIES), {"rotated": 1}, 0),
    "rotary positions": (rotary, (A, POSITIONS, FREQUENCIES), {"rotated": 1}, 1),
    "rotary frequencies": (rotary, (A, POSITIONS, FREQUENCIES), {"rotated": 1}, 2),
    "rotary out": (rotary, (A, POSITIONS, FREQUENCIES), {"rotated": 1, "out": A.clone()}, "out"),
}  # fmt: skip
"""By operator and operand: a call, and where the operand is in it."""


class Wrapper(torch.Tensor):
    """A tensor that stands for another one, as DTensor does."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Wrapper(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        raise AssertionError("nothing of it was asked for")

    def __repr__(self, *, tensor_contents=None):
        return "Wrapper"


SPOILED = {
    "elsewhere": (lambda tensor: tensor.to("meta"), "on meta"),
    "no tensor": (lambda tensor: tensor.tolist(), "has to be a tensor"),
    "wrapped": (Wrapper, "is a Wrapper, which stands for other tensors"),
    "sparse": (lambda tensor: tensor.float().to_sparse(), "sparse"),
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("name", OPERANDS)
def test_what_is_no_tensor_here(name, how):
    operator, arguments, options, place = OPERANDS[name]
    spoil, message = SPOILED[how]

    def body():
        given, named = list(arguments), dict(options)
        (given if isinstance(place, int) else named).__setitem__(place, spoil((given if isinstance(place, int) else named)[place]))
        operator(*given, **named)

    with pytest.raises(InvalidArgumentError, match=message):
        triton_dist.simulate(body, world_size=2)


LAYERS = {
    "TPMLP": lambda **options: TPMLP(16, 32, **options),
    "TPAttention": lambda **options: TPAttention(16, 4, **options),
    "ColumnParallelLinear": lambda **options: ColumnParallelLinear(16, 16, **options),
    "RowParallelLinear": lambda **options: RowParallelLinear(32, 16, **options),
}


@pytest.mark.parametrize("sequence_parallel", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_whose_weights_were_not_made(name, sequence_parallel):
    """Left at device="meta"; a product of torch's would leave its output as it was."""

    def body():
        layer = LAYERS[name](device="meta", sequence_parallel=sequence_parallel)
        with torch.no_grad():
            layer(torch.ones(8, 16))

    with pytest.raises(InvalidArgumentError, match="to_empty"):
        triton_dist.simulate(body, world_size=2)


def overlapping(name):
    """A call whose output lies in part where an operand does, and the operand."""
    size, rank = triton_dist.world_size(), triton_dist.rank()
    memory = torch.ones(4 * size, 4)
    if name == "ag_gemm a_shard":
        return lambda: ag_gemm(memory[4 * rank : 4 * rank + 4], B, out=memory)
    if name == "ag_gemm b":
        return lambda: ag_gemm(A, memory[:4], out=memory)
    if name == "ag_gemm rows":
        return lambda: ag_gemm(A, B, out=torch.empty(1, 4).expand(4 * size, 4))
    operator, operand = {"gemm_ar": gemm_ar, "gemm_rs": gemm_rs}[name.split()[0]], name.split()[1]
    a, b = torch.ones(4, 4), torch.ones(4, 4)
    given = {"a": a, "b": b, "bias": b[0]}[operand]
    out = {"gemm_ar": given.expand(4, 4) if operand == "bias" else given, "gemm_rs": given[: 4 // size]}[operator.__name__]
    bias = given if operand == "bias" else None
    if bias is not None:
        out = b[: len(out)] if operator is gemm_rs else b
        b = torch.ones(4, 4)
    return lambda: operator(a, b, bias=bias, out=out)


@pytest.mark.parametrize(
    "name",
    ["ag_gemm a_shard", "ag_gemm b", "ag_gemm rows", "gemm_ar a", "gemm_ar b", "gemm_ar bias", "gemm_rs a", "gemm_rs b", "gemm_rs bias"],
)
def test_products_into_their_own_operands(name):
    with pytest.raises(InvalidArgumentError, match="shares memory|do not overlap"):
        triton_dist.simulate(lambda: overlapping(name)(), world_size=2)


def test_words_of_all_to_all_have_memory_of_their_own():
    def body(received_at, out_at):
        words = torch.tensor([2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=torch.int32)
        out = words[4:12].view(torch.float32).view(4, 2) if out_at is None else torch.empty(4, 2)
        all_to_all(torch.ones(4, 2), words[:2], out=out, received=words[received_at : received_at + 2])

    for received_at, out_at in ((0, 0), (1, 0), (5, None)):
        with pytest.raises(InvalidArgumentError, match="memory"):
            triton_dist.simulate(body, world_size=2, args=(received_at, out_at))
    triton_dist.simulate(body, world_size=2, args=(2, None))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (lambda m: m[:2], lambda m: m[2:], False),
        (lambda m: m[:3], lambda m: m[2:], True),
        (lambda m: m[:, :3], lambda m: m[:, 3:], False),
        (lambda m: m[:, :4], lambda m: m[:, 3:], True),
        (lambda m: m[1:, 3:], lambda m: m[:-1, :3], False),
        (lambda m: m[:, 3:], lambda m: m.view(-1)[3:].as_strided((7, 4), (8, 1)), True),
        (lambda m: m[:, :3], lambda m: m[:, 3:].t(), False),
        (lambda m: m[:, :3], lambda m: m[:, 2:].t(), True),
        (lambda m: m[:0], lambda m: m, False),
        (lambda m: m, lambda m: m.clone(), False),
        (lambda m: m[:, 0], lambda m: m[:, 1], True),  # no matrices: it is only said that they might
    ],
)
def test_what_overlaps(first, second, expected):
    memory = torch.zeros(8, 8)
    assert overlap(first(memory), second(memory)) is expected
    assert overlap(second(memory), first(memory)) is expected


@pytest.mark.parametrize("operator", [ag_gemm, gemm_rs, gemm_ar])
def test_what_else_is_no_argument(operator):
    for options, message in (
        ({"tiles": (128, 128, 64)}, "give a Tiles"),
        (
            {"out": torch.empty(4 if operator is gemm_ar else 4 // 2 if operator is gemm_rs else 8, 4, requires_grad=True)},
            r"out.detach\(\)",
        ),
    ):
        if "tiles" in options and operator is gemm_ar:
            continue
        with pytest.raises(InvalidArgumentError, match=message):
            triton_dist.simulate(lambda options=options: operator(A, B, **options), world_size=2)


def test_parameters_are_written_without_autograd():
    """Of other layouts, too, whose values are copied back; ``torch.distributed`` does the same."""

    def body():
        rank = triton_dist.rank()
        convolution = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        with torch.no_grad():
            for parameter in convolution.parameters():
                parameter.fill_(rank + 1.0)
        for parameter in convolution.parameters():
            broadcast(parameter, src=1)
        return all(bool((parameter == 2).all()) for parameter in convolution.parameters())

    assert triton_dist.simulate(body, world_size=2) == [True] * 2
    with pytest.raises(InvalidArgumentError, match="elements share memory"):
        triton_dist.simulate(lambda: broadcast(torch.ones(1, 4).expand(3, 4)), world_size=2)
