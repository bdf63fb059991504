"""The kernel with every kind of task, compiled for GPUs: it fits their shared memory, and few rows go by the wide matrix units."""

from __future__ import annotations

import pytest
import torch
from triton import compile as compile_kernel

from tests.primitives.compile_targets import source_of, target_of
from triton_dist.errors import InvalidArgumentError
from triton_dist.mega_triton_kernel.graph import Operation
from triton_dist.mega_triton_kernel.kernel import Kind, Kinds, mega_kernel
from triton_dist.mega_triton_kernel.machine import Machine
from triton_dist.mega_triton_kernel.tasks import (
    activation,
    allreduce,
    barrier,
    elementwise,
    flash_attention,
    flash_decode,
    linear,
    normalization,
    prefetch,
)

SHARED = {80: 166_912, 90: 232_448, 100: 232_448, 120: 101_376, "gfx942": 65_536}
RANKS = barrier.Ranks(0, 4, 1)
TYPES = {"queue": "*i64", "starts": "*i32", "waits": "*i32", "words": "*i32", "state": "*i32", "profiler_buffer": "*u64"}


def operations(dtype: torch.dtype, machine: Machine, rows: int = 4, dim: int = 128) -> dict[str, list[Operation]]:
    """One of each family, of the sizes of a model."""

    def tensor(*shape: int, of: torch.dtype = dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=of)

    hidden, heads, kv_heads, programs = 1024, 8, 2, machine.programs
    x, total = tensor(rows, hidden), tensor(rows, hidden)
    weight, lens, tables = tensor(hidden), tensor(rows, of=torch.int32), tensor(rows, 8, of=torch.int32)
    query, attended, cache = tensor(rows, 1, heads, dim), tensor(rows, 1, heads, dim), tensor(64, 16, kv_heads, dim)
    qkv, long = tensor(rows, 1, heads + 2 * kv_heads, dim), tensor(1, 300, heads + 2 * kv_heads, dim)
    angles = tensor(200, dim, of=torch.float32)
    norms, other_cache = normalization.Norms(tensor(dim), tensor(dim)), tensor(64, 16, kv_heads, dim)
    sums, norm = (
        elementwise.add(x, tensor(rows, hidden), total, programs),
        normalization.rms_norm(total, weight, tensor(rows, hidden), 1e-6),
    )
    wide = tensor(rows, 10000)
    product, gated = (
        linear.linear("fc1", x, tensor(10000, hidden), wide, machine),
        activation.silu_mul_up(wide, tensor(rows, 5000), programs),
    )
    both, gated_product = normalization.with_add(sums, norm), linear.with_silu_mul_up(product, gated, machine)
    assert both is not None and gated_product is not None
    return {
        "few rows": [linear.linear("fc2", x, tensor(5000, hidden), tensor(rows, 5000), machine)],
        "few rows, gated": [gated_product],
        "many rows": [linear.linear("linear", tensor(300, hidden), tensor(500, hidden), tensor(300, 500), machine)],
        "elementwise": [sums, activation.silu_mul_up(tensor(rows, 2 * hidden), x, programs), prefetch.prefetch(tensor(500, hidden))],
        "norms": [norm, both],
        "heads": [
            normalization.qk_norm_rope_update_kvcache(qkv, cache, other_cache, tables, lens, norms, angles, angles, query, programs),
            normalization.qkv_pack_qk_norm_rope_split_v(
                long, tensor(1, of=torch.int32), norms, angles, angles, tensor(1, 300, heads, dim), tensor(1, 300, kv_heads, dim),
                tensor(1, 300, kv_heads, dim), programs,
            ),
        ],
        "attention": [
            flash_attention.qkv_pack_flash_attention(
                long, tensor(1, 300, heads, dim), machine, scale=None, soft_cap=0.0, causal=True
            ),
        ],
        "decoding": [
            flash_decode.flash_decode(query, cache, other_cache, tables, lens, attended, machine, scale=None, soft_cap=2.0)
        ],
        "ranks": [
            *allreduce.allreduce(x, tensor(rows, hidden), RANKS, 256, told=True),
            barrier.barrier(RANKS, [x]),
        ],
    }  # fmt: skip


def compiled(made: list[Operation], arch: int | str, *, taken: bool = False, profile: bool = False):
    kinds = Kinds(tuple(Kind(operation.body, operation.constants) for operation in made))
    source = source_of(mega_kernel, TYPES, {"KINDS": kinds, "TAKE": taken, "PROFILE": profile}, tuple(TYPES))
    return compile_kernel(source, target=target_of(arch), options={"num_warps": 4})


FAMILIES = tuple(operations(torch.bfloat16, Machine(132, SHARED[90])))


@pytest.mark.parametrize(
    ("arch", "dtype", "family"),
    [
        *((arch, torch.bfloat16, family) for arch in (90, "gfx942") for family in FAMILIES),
        *((arch, torch.bfloat16, family) for arch in (80, 100, 120) for family in ("few rows", "few rows, gated", "attention", "decoding")),
        *((90, torch.float32, family) for family in ("attention", "decoding")),
    ],
)
def test_every_family_fits(arch, dtype, family):
    machine = Machine(132, SHARED[arch] - 8192)
    assert compiled(operations(dtype, machine)[family], arch).metadata.shared <= SHARED[arch]


@pytest.mark.parametrize(("taken", "profile"), [(False, True), (True, False)])
def test_all_families_in_one(taken, profile):
    made = [operation for of_family in operations(torch.float16, Machine(132, SHARED[90] - 8192)).values() for operation in of_family]
    assert compiled(made, 90, taken=taken, profile=profile).metadata.shared <= SHARED[90]


@pytest.mark.parametrize("family", ["few rows", "few rows, gated"])
@pytest.mark.parametrize("rows", [1, 64])
def test_few_rows_stand_on_the_right(rows, family):
    """Weights are the left operand of a product of 64 rows of them, and go from global to shared memory while others are multiplied."""
    ptx = compiled(operations(torch.bfloat16, Machine(79, SHARED[90] - 8192), rows)[family], 90).asm["ptx"]
    assert "wgmma.mma_async" in ptx and "ldmatrix" not in ptx and "cp.async.cg" in ptx


def test_wide_heads_fit():
    for dim in (96, 256):
        made = operations(torch.bfloat16, Machine(132, SHARED[90] - 8192), dim=dim)
        assert compiled([*made["attention"], *made["decoding"]], 90).metadata.shared <= SHARED[90]


def decode(dtype: torch.dtype, arch: int, heads: int, dim: int, v_dim: int) -> Operation:
    """All heads of q share one of k."""
    pages, batch = 64, 4
    return flash_decode.flash_decode(
        torch.empty(batch, 1, heads, dim, dtype=dtype), torch.empty(pages, 16, 1, dim, dtype=dtype),
        torch.empty(pages, 16, 1, v_dim, dtype=dtype), torch.empty(batch, 16, dtype=torch.int32), torch.empty(batch, dtype=torch.int32),
        torch.empty(batch, 1, heads, v_dim, dtype=dtype), Machine(132, SHARED[arch] - 8192), scale=None, soft_cap=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "arch", "heads", "dim", "v_dim"),
    [
        (torch.bfloat16, 90, 64, 576, 512),
        (torch.bfloat16, 90, 16, 576, 512),
        (torch.bfloat16, 90, 128, 192, 128),
        (torch.float32, 90, 16, 576, 512),
        (torch.bfloat16, 80, 64, 256, 256),
        (torch.float32, 120, 64, 128, 128),
    ],
)
def test_many_heads_that_share_keys_fit(dtype, arch, heads, dim, v_dim):
    """The block of q counts too."""
    assert compiled([decode(dtype, arch, heads, dim, v_dim)], arch).metadata.shared <= SHARED[arch]


def test_too_many_heads_that_share_keys_are_refused():
    with pytest.raises(InvalidArgumentError, match="128 heads of q that share one of k, in blocks of 1024 elements, need 299008 bytes"):
        decode(torch.bfloat16, 90, 128, 576, 512)
