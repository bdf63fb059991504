"""Sizes of the layers of known models: what shapes the benchmarks use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Projection:
    """A linear layer that is split over its columns, or over its depth: depth K and columns N of all ranks together."""

    depth: int
    columns: int


def column_parallel(hidden: int, mlp_columns: int, heads: int, kv_heads: int, head_size: int = 128) -> dict[str, Projection]:
    """The two column-parallel layers of a transformer layer: into the MLP, and q, k and v in one."""
    return {"mlp": Projection(hidden, mlp_columns), "attention": Projection(hidden, (heads + 2 * kv_heads) * head_size)}


def row_parallel(hidden: int, mlp_depth: int, heads: int, head_size: int = 128) -> dict[str, Projection]:
    """The two row-parallel layers of a transformer layer: out of the MLP, and out of the attention."""
    return {"mlp": Projection(mlp_depth, hidden), "attention": Projection(heads * head_size, hidden)}


_MODELS = {
    "llama3-8b": column_parallel(4096, 2 * 14336, 32, 8),  # gate and up in one
    "llama3-70b": column_parallel(8192, 2 * 28672, 64, 8),
    "qwen3-32b": column_parallel(5120, 2 * 25600, 64, 8),
    "gpt3-175b": column_parallel(12288, 4 * 12288, 96, 96),  # no gate
}
COLUMN_PARALLEL = {f"{model}-{layer}": projection for model, layers in _MODELS.items() for layer, projection in layers.items()}
"""By "model-layer"."""

_ROW_MODELS = {
    "llama3-8b": row_parallel(4096, 14336, 32),
    "llama3-70b": row_parallel(8192, 28672, 64),
    "qwen3-32b": row_parallel(5120, 25600, 64),
    "gpt3-175b": row_parallel(12288, 4 * 12288, 96),
}
ROW_PARALLEL = {f"{model}-{layer}": projection for model, layers in _ROW_MODELS.items() for layer, projection in layers.items()}
"""By "model-layer"."""


@dataclass(frozen=True)
class Block:
    """An MLP of all ranks together: ``intermediate`` features between the projections; gated: of two each, gate and up."""

    hidden: int
    intermediate: int
    gated: bool


def _block(model: str) -> Block:
    columns, depth = COLUMN_PARALLEL[f"{model}-mlp"], ROW_PARALLEL[f"{model}-mlp"]
    return Block(columns.depth, depth.depth, columns.columns == 2 * depth.depth)


BLOCKS = {model: _block(model) for model in _MODELS}
"""By model."""
