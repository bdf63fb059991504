"""Memory of the rank's GPU as ``torch.cuda`` tells of it: the simulator does not count it, so every statistic is 0."""

from __future__ import annotations

from typing import Any

from .streams import here

_POOLS = ("all", "large_pool", "small_pool")
_MOMENTS = ("current", "peak", "allocated", "freed")
_BY_POOL = (
    *("allocation", "segment", "active", "inactive_split"),
    *("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"),
)
_SINGLE = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size")
_OVERSIZE = ("oversize_allocations", "oversize_segments")


def memory_in_use(device: Any = None) -> int:
    """Bytes that the simulator knows of; other tensors are not counted."""
    here("torch.cuda.memory_allocated()")
    return 0


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """``torch.cuda.memory_stats_as_nested_dict``: torch's names, all 0."""
    here("torch.cuda.memory_stats()")
    return {
        **{name: {pool: dict.fromkeys(_MOMENTS, 0) for pool in _POOLS} for name in _BY_POOL},
        **{name: dict.fromkeys(_MOMENTS, 0) for name in _OVERSIZE},
        **dict.fromkeys(_SINGLE, 0),
    }


def memory_stats(device: Any = None) -> dict[str, int]:
    """``torch.cuda.memory_stats``: the same, by names such as "allocated_bytes.all.peak"."""
    return dict(sorted(_flat("", memory_stats_as_nested_dict(device)).items()))


def _flat(prefix: str, value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {prefix: value}
    joined: dict[str, int] = {}
    for name, inner in value.items():
        joined |= _flat(f"{prefix}.{name}" if prefix else name, inner)
    return joined


def memory_snapshot(*_arguments: Any, **_options: Any) -> list[dict[str, Any]]:
    """``torch.cuda.memory_snapshot``: no segments."""
    here("torch.cuda.memory_snapshot()")
    return []
