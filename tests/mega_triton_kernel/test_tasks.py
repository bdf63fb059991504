"""Every family of tasks against torch in float64: dtypes, odd sizes, several tiles an axis. Tests that take ``world`` run on GPUs too."""

from __future__ import annotations

import pytest
import torch

import triton_dist
from tests.differences import relative_error
from triton_dist.mega_triton_kernel import ModelBuilder

from . import references
from .references import TOLERANCE, Random, nan_like

DTYPES = tuple(TOLERANCE)


def run(builder: ModelBuilder, times: int = 2) -> None:
    """Compile, and run more than once: a run leaves everything as the next one needs it."""
    builder.compile()
    for _ in range(times):
        builder.run()
    triton_dist.synchronize()


def linear(shape: tuple[int, int, int], dtype: torch.dtype, programs: int) -> float:
    (m, n, k), random = shape, Random(1, dtype)
    x, weight = random(m, k), random(n, k)
    out = nan_like((m, n), x)
    builder = ModelBuilder(num_sms=programs)
    builder.make_linear(x, weight, out)
    run(builder)
    return relative_error(out, references.linear(x, weight))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 70, 48), (3, 100, 300), (17, 33, 70), (70, 40, 48), (300, 130, 80)], ids=str)
def test_products_match_torch(world, shape, dtype):
    assert world(linear, 1, args=(shape, dtype, 3))[0] < TOLERANCE[dtype]


def by_every_name() -> list[float]:
    random = Random(14)
    builder, pairs = ModelBuilder(num_sms=3), []

    def product() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, weight = random(3, 40), random(50, 40)
        pairs.append((x, weight, nan_like((3, 50), x)))
        return pairs[-1]

    builder.make_fc1(*product())
    builder.reset()
    pairs.clear()
    builder.make_fc1(*product())
    builder.make_fc2(*product(), layer_id=1)
    builder.make_qkv_proj(*product())
    builder.make_o_proj(*product())
    run(builder)
    assert builder.task_types_to_str[1] == "mlp_fc1/mlp_fc2/qkv_proj/o_proj"
    return [relative_error(out, references.linear(x, weight)) for x, weight, out in pairs]


def test_products_by_every_name(world):
    """They run the same code, under one name in traces; what was made before ``reset`` does not run."""
    errors = world(by_every_name, 1)[0]
    assert len(errors) == 4 and max(errors) < 1e-5


def elementwise(dtype: torch.dtype) -> list[float]:
    random = Random(2, dtype)
    lhs, rhs, hidden = random(3, 7, 111), random(3, 7, 111), random(5, 2 * 333)
    out, in_place, act = nan_like(lhs.shape, lhs), lhs.clone(), nan_like((5, 333), hidden)
    builder = ModelBuilder(num_sms=4)
    builder.make_add(lhs, rhs, out)
    builder.make_add(in_place, rhs, in_place)
    builder.make_silu_mul_up(hidden, act)
    builder.compile()
    builder.run()
    triton_dist.synchronize()
    expected = sum(references.wide(lhs, rhs))
    return [relative_error(out, expected), relative_error(in_place, expected), relative_error(act, references.silu_mul_up(hidden))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_activations_match_torch(world, dtype):
    assert max(world(elementwise, 1, args=(dtype,))[0]) < TOLERANCE[dtype]


def gated(shape: tuple[int, int, int], dtype: torch.dtype, programs: int) -> list[float]:
    """A product and the activation behind it: the activation is computed of the product as it is rounded."""
    (m, n, k), random = shape, Random(15, dtype)
    x, weight = random(m, k), random(2 * n, k)
    wide, act = nan_like((m, 2 * n), x), nan_like((m, n), x)
    builder = ModelBuilder(num_sms=programs)
    builder.make_fc1(x, weight, wide)
    builder.make_silu_mul_up(wide, act)
    run(builder)
    together = builder.task_types_to_str[1] == "mlp_fc1_silu_mul_up"
    assert together == (m <= 64)
    return [relative_error(wide, references.linear(x, weight)), relative_error(act, references.silu_mul_up(wide))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 70, 48), (3, 33, 300), (17, 7, 70), (64, 130, 40), (70, 40, 48)], ids=str)
def test_gated_products_match_torch(world, shape, dtype):
    assert max(world(gated, 1, args=(shape, dtype, 3))[0]) < TOLERANCE[dtype]


def norms(dtype: torch.dtype, columns: int) -> list[float]:
    random = Random(3, dtype)
    x, other, weight = random(4, 2, columns), random(4, 2, columns), random(columns)
    alone, total, behind = (nan_like(x.shape, x) for _ in range(3))
    builder = ModelBuilder(num_sms=3)
    builder.make_rms_norm(x, weight, alone, 1e-3)
    builder.make_add(x, other, total)
    builder.make_rms_norm(total, weight, behind)
    run(builder)
    return [
        relative_error(alone, references.rms_norm(x, weight, 1e-3)),
        relative_error(total, sum(references.wide(x, other))),
        relative_error(behind, references.rms_norm(total, weight)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [24, 1000, 9000])
def test_norms_match_torch(world, columns, dtype):
    """Alone, and behind a sum, with which a norm of rows that are not too long is one operation."""
    assert max(world(norms, 1, args=(dtype, columns))[0]) < TOLERANCE[dtype]


ATTENTIONS = {
    "square": ((2, 70, 70, 4, 2, 32), {}),
    "longer keys, odd heads": ((1, 130, 150, 3, 1, 48), {}),
    "not causal": ((1, 40, 75, 2, 2, 16), {"is_causal": False, "soft_cap": 5.0}),
    "several tiles": ((1, 300, 300, 2, 1, 16), {"soft_cap": 3.0, "sm_scale": 0.3}),
    "one token": ((3, 1, 33, 2, 1, 64), {}),
}


def attention(shape: tuple[int, ...], options: dict, dtype: torch.dtype) -> list[float]:
    batch, length, keys, heads, kv_heads, dim = shape
    random = Random(4, dtype)
    q, k, v = random(batch, length, heads, dim), random(batch, keys, kv_heads, dim), random(batch, keys, kv_heads, dim)
    out, packed_out = nan_like(q.shape, q), nan_like(q.shape, q)
    builder = ModelBuilder(num_sms=4)
    builder.make_flash_attn(q, k, v, out, **options)
    results = [out]
    if length == keys:
        builder.make_qkv_pack_flash_attn(torch.cat((q, k, v), 2), packed_out, **options)
        results.append(packed_out)
    run(builder, 1)
    causal, scale, cap = options.get("is_causal", True), options.get("sm_scale"), options.get("soft_cap", 0.0)
    expected = references.attention(q, k, v, scale=scale, soft_cap=cap, causal=causal)
    return [relative_error(result, expected) for result in results]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_matches_torch(world, name, dtype):
    assert max(world(attention, 1, args=(*ATTENTIONS[name], dtype))[0]) < TOLERANCE[dtype]


def paged(cache: torch.Tensor, tables: torch.Tensor, sequence: int, count: int) -> torch.Tensor:
    """The first ``count`` rows of a sequence, (count, heads, dim)."""
    return cache[tables[sequence].long()].flatten(0, 1)[:count]


def decoding(dtype: torch.dtype, programs: int, soft_cap: float) -> list[float]:
    """Three steps: new keys and values go into the pages, and what is attended to grows."""
    random = Random(5, dtype)
    batch, heads, kv_heads, dim, page, pages = 3, 6, 2, 24, 4, 90
    keys, values = random(pages, page, kv_heads, dim), random(pages, page, kv_heads, dim)
    tables = random.permutation(pages).view(batch, -1).contiguous()
    lens = torch.tensor([70, 3, 0], dtype=torch.int32, device=keys.device)
    qkv, q_weight, k_weight = random(batch, 1, heads + 2 * kv_heads, dim), random(dim), random(dim)
    query, out = nan_like((batch, 1, heads, dim), qkv), nan_like((batch, 1, heads, dim), qkv)
    cos, sin = references.angles(80, dim)
    builder = ModelBuilder(num_sms=programs)
    builder.make_qk_norm_rope_update_kvcache(qkv, keys, values, tables, lens, q_weight, k_weight, cos, sin, query, 1e-6, 1e-5)
    builder.make_flash_decode(query, keys, values, tables, lens, out, soft_cap=soft_cap)
    builder.compile()
    errors = []
    for _ in range(3):
        lens += 1
        qkv.copy_(random(*qkv.shape))
        before = keys.clone(), values.clone()
        builder.run()
        triton_dist.synchronize()
        q, k, v = references.wide(qkv)[0].split([heads, kv_heads, kv_heads], 2)
        position = (lens.cpu().long() - 1)[:, None]
        q = references.rotary(references.rms_norm(q, q_weight), position, cos, sin)
        k = references.rotary(references.rms_norm(k, k_weight, 1e-5), position, cos, sin)
        errors.append(relative_error(query, q))
        for sequence, count in enumerate(lens.tolist()):
            all_k, all_v = (paged(cache, tables, sequence, count).double().cpu() for cache in before)
            all_k[-1], all_v[-1] = k[sequence, 0], v[sequence, 0]
            errors.append(relative_error(paged(keys, tables, sequence, count), all_k))
            errors.append(relative_error(paged(values, tables, sequence, count), all_v))
            expected = references.attention(query[sequence : sequence + 1], all_k[None], all_v[None], soft_cap=soft_cap)
            errors.append(relative_error(out[sequence], expected[0]))
    return errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("programs", "soft_cap"), [(4, 0.0), (30, 5.0), (100, 0.0)])
def test_decoding_matches_torch(world, programs, soft_cap, dtype):
    """Keys in one share, in several, and where there are more shares than keys."""
    assert max(world(decoding, 1, args=(dtype, programs, soft_cap))[0]) < TOLERANCE[dtype]


def shared_keys() -> float:
    """Many wide heads of q to one head of keys, of which shared memory has room for few at a time."""
    random = Random(22, torch.bfloat16)
    query, keys, values = random(2, 1, 64, 576), random(20, 4, 1, 576, scale=0.1), random(20, 4, 1, 512)
    tables, lens = random.permutation(20).view(2, 10), torch.tensor([37, 9], dtype=torch.int32, device=query.device)
    out = nan_like((2, 1, 64, 512), query)
    builder = ModelBuilder(num_sms=4)
    builder.make_flash_decode(query, keys, values, tables, lens, out)
    run(builder, 1)
    found = []
    for sequence, count in enumerate(lens.tolist()):
        k, v = (paged(cache, tables, sequence, count)[None] for cache in (keys, values))
        found.append(relative_error(out[sequence], references.attention(query[sequence : sequence + 1], k, v)[0]))
    return max(found)


def test_decoding_of_many_heads_that_share_keys(world):
    assert world(shared_keys, 1)[0] < TOLERANCE[torch.bfloat16]


def prefill(dtype: torch.dtype, shared_tables: bool, norm: bool) -> list[float]:
    random = Random(6, dtype)
    batch, length, heads, kv_heads, dim = 2, 37, 3, 1, 40
    qkv, q_weight, k_weight = random(batch, length, heads + 2 * kv_heads, dim), random(dim), random(dim)
    lens = torch.tensor([5, 0], dtype=torch.int32, device=qkv.device)
    query, key, value = (nan_like((batch, length, count, dim), qkv) for count in (heads, kv_heads, kv_heads))
    cos, sin = references.angles(50, dim)
    tables = (cos, sin) if shared_tables else (torch.stack((cos, cos)), torch.stack((sin, sin)))
    builder = ModelBuilder(num_sms=4)
    if norm:
        builder.make_qkv_pack_qk_norm_rope_split_v(qkv, lens, q_weight, k_weight, *tables, query, key, value)
    else:
        pages, own = torch.arange(2 * 9, dtype=torch.int32, device=qkv.device).view(2, 9), nan_like((18, 5, kv_heads, dim), qkv)
        own_values = nan_like(own.shape, qkv)
        more = lens + length
        builder.make_qk_norm_rope_update_kvcache(
            qkv, own, own_values, pages, more, q_weight, k_weight, *tables, query, skip_q_norm=True, skip_k_norm=True
        )
    run(builder, 1)
    if not norm:
        for sequence, first in enumerate(lens.tolist()):
            key[sequence] = paged(own, pages, sequence, first + length)[first:]
            value[sequence] = paged(own_values, pages, sequence, first + length)[first:]
    q, k, v = references.wide(qkv)[0].split([heads, kv_heads, kv_heads], 2)
    if norm:
        q, k = references.rms_norm(q, q_weight), references.rms_norm(k, k_weight)
    positions = lens.cpu().long()[:, None] + torch.arange(length)
    return [
        relative_error(query, references.rotary(q, positions, cos, sin)),
        relative_error(key, references.rotary(k, positions, cos, sin)),
        relative_error(value, v),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shared_tables", [True, False], ids=["one table", "a table each"])
@pytest.mark.parametrize("norm", [True, False], ids=["split", "paged, no norm"])
def test_heads_of_many_tokens_match_torch(world, norm, shared_tables, dtype):
    assert max(world(prefill, 1, args=(dtype, shared_tables, norm))[0]) < TOLERANCE[dtype]


def shorter_than_new_tokens(lens: list[int], length: int) -> tuple[list[list[int]], bool]:
    """The slots of the caches that were written, (pages, slots) in order, of k and v; and whether q is 0 where it has no position.

    The tables of cosines and sines begin in the midst of a tensor, and each sequence's pages behind those of another one: what goes to a
    negative position is seen in a foreign page.
    """
    random, (heads, kv_heads, dim, page, pages) = Random(21), (2, 1, 16, 4, 12)
    qkv, ones = random(len(lens), length, heads + 2 * kv_heads, dim), random(dim).abs()
    keys, values = (torch.zeros_like(random(pages, page, kv_heads, dim)) for _ in range(2))
    tables = torch.arange(pages, dtype=torch.int32, device=qkv.device).view(len(lens), -1)
    counts = torch.tensor(lens, dtype=torch.int32, device=qkv.device)
    angles = random(200, dim)[100:]
    query = nan_like((len(lens), length, heads, dim), qkv)
    builder = ModelBuilder(num_sms=4)
    builder.make_qk_norm_rope_update_kvcache(qkv, keys, values, tables, counts, ones, ones, angles, angles, query)
    run(builder, 1)
    written = [(cache.flatten(0, 1) != 0).any(-1).flatten().nonzero().flatten().tolist() for cache in (keys, values)]
    zero = [[not query[sequence, token].any() for token in range(length)] for sequence in range(len(lens))]
    expected = [[count - length + token < 0 for token in range(length)] for count in lens]
    return written, zero == expected


@pytest.mark.parametrize(("lens", "length"), [([5, 0, 9], 1), ([5, 2, 0], 4), ([0, 0, 0], 3)], ids=str)
def test_tokens_without_a_position_are_left_out(world, lens, length):
    places = [16 * sequence + position for sequence, count in enumerate(lens) for position in range(max(0, count - length), count)]
    written, zero = world(shorter_than_new_tokens, 1, args=(lens, length))[0]
    assert written == [places, places] and zero


@pytest.mark.parametrize("body", [decoding, prefill, norms, elementwise])
def test_tasks_have_no_finding(body):
    arguments = {"decoding": (30, 0.0), "prefill": (False, False), "norms": (24,), "elementwise": ()}[body.__name__]
    triton_dist.simulate(body, world_size=1, args=(torch.float32, *arguments), check="all")


def test_attention_and_products_have_no_finding():
    triton_dist.simulate(attention, world_size=1, args=(*ATTENTIONS["square"], torch.float32), check="all")
    triton_dist.simulate(linear, world_size=1, args=((70, 40, 48), torch.float32, 3), check="all")
    triton_dist.simulate(gated, world_size=1, args=((3, 33, 300), torch.float32, 3), check="all")
