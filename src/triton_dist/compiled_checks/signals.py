"""TD204: signals in warp-specialised loops that no partition gives, or several."""

from __future__ import annotations

from collections.abc import Iterator

from ..lints import Finding
from ..sim.ir import Operation
from .operations import ACQ_REL, RELEASE, assembly, chain_of, operations, shown
from .traces import Warps, partition_operations, partition_regions


def check_signals(ttgir: Operation, arch: int) -> Iterator[Finding]:
    """Look at each specialised region of the GPU IR.

    ``notify`` writes only in the default partition, whose warps have the lowest thread indices. Triton copies a signal to the partitions
    that use what its address is computed from.
    """
    makers = {result: op for op in operations(ttgir) for result in op.results}
    for region in operations(ttgir):
        if region.name != "ttg.warp_specialize":
            continue
        default = [inner for block in region.regions[0] for op in block.operations for inner in (op, *operations(op))]
        others = [Warps(region, number + 1) for number in range(len(partition_regions(region)))]
        parts = {"default": default} | {warps.name: partition_operations(warps) for warps in others}
        places: dict[tuple, list[str]] = {}
        signals: dict[tuple, Operation] = {}
        for name, inner in parts.items():
            for op in inner:
                if op.name == "tt.atomic_rmw" and op.attributes.get("sem") in (RELEASE, ACQ_REL) and not op.result_types[0].dims:
                    signals[chain_of(op).key] = op
                    places.setdefault(chain_of(op).key, []).append(name)
        for key, names in places.items():
            yield from _check(signals[key], sorted(set(names)), makers, arch)


def _check(signal: Operation, names: list[str], makers: dict[str, Operation], arch: int) -> Iterator[Finding]:
    place = shown(chain_of(signal))
    if _only_default_gives(signal, makers):
        if "default" not in names:
            yield Finding(
                "TD204",
                f"for sm_{arch} this signal stands in {' and '.join(names)} of a warp-specialised loop only, and notify writes in the "
                "default partition, which stores the tile: it is never given; compute its pointer from another base than what the "
                "loads waited for, or consume the token by the row that the store uses, too",
                place.file or None,
                place.line or None,
            )
    elif len(names) > 1:
        yield Finding(
            "TD204",
            f"for sm_{arch} Triton copied this signal to {len(names)} partitions ({', '.join(names)}) of a warp-specialised loop: it is "
            "given that many times, by warps that did not store the tile, too; use dl.notify, which writes in the default partition only",
            place.file or None,
            place.line or None,
        )


def _only_default_gives(signal: Operation, makers: dict[str, Operation]) -> bool:
    """Whether its mask compares the thread's index with the number of the default partition's threads."""
    compare = makers.get(signal.operands[-1])
    if compare is None or compare.name != "arith.cmpi":
        return False
    return any(name in makers and "%tid." in assembly(makers[name]) for name in compare.operands)
