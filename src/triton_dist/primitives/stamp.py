"""The stamp of the lowerings: a hash that every primitive carries as a literal, so that Triton's cache key covers them.

Triton hashes the source of the jit functions that a kernel calls, but not the text of builtins nor the value of constexpr
globals. Without the stamp a new version of this package would run kernels of an old one from the disk cache.

``python -m triton_dist.primitives.stamp`` rewrites the literals; with ``--check`` it only says whether they are current.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

from triton_dist.runtime import address_map, context_layout, wait_layout

_DIRECTORY = Path(__file__).parent
LITERAL = re.compile(r'(\bstamp=")([0-9a-f]{16})(")')
"""The literals in the stamped files."""

STAMPED_FILES = tuple(
    _DIRECTORY / name
    for name in (
        "functions.py",
        "thread_functions.py",
        "word_functions.py",
        "flagged_functions.py",
        "shmem_functions.py",
        "shmem_team_functions.py",
    )
)
"""The files whose functions carry the stamp."""

LOWERING_FILES = tuple(
    _DIRECTORY / name
    for name in (
        "arguments.py",
        "bitcode.py",
        "call.py",
        "common.py",
        "compare.py",
        "cuda.py",
        "cuda_threads.py",
        "cuda_wait.py",
        "extern_call.py",
        "flagged.py",
        "hip.py",
        "hip_functions.py",
        "hip_threads.py",
        "kernel_hash.py",
        "lowering.py",
        "nvshmem.py",
        "region.py",
        "shared_ledger.py",
        "shmem.py",
        "shmem_device.py",
        "sim.py",
        "sim_threads.py",
        "source_rewrite.py",
        "table.py",
        "values.py",
        "vector.py",
        "vector_functions.py",
        "word_groups.py",
    )
)
"""The files whose text decides what a primitive becomes; the stamped ones are hashed by Triton, but for their defaults."""


def compute_stamp() -> str:
    """Hash of the lowerings' text and of the constants of address map, context page and wait board that they put into kernels."""
    digest = hashlib.sha256()
    for path in LOWERING_FILES:
        digest.update(path.read_text(encoding="utf-8").encode())
    for path in STAMPED_FILES:
        digest.update(LITERAL.sub(r"\1\3", path.read_text(encoding="utf-8")).encode())
    for module in (address_map, context_layout, wait_layout):
        constants = {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, (int, str, tuple))}
        digest.update(repr(sorted(constants.items())).encode())
    return digest.hexdigest()[:16]


def stamps_in(source: str) -> set[str]:
    """The different stamps that a source text carries."""
    return {match.group(2) for match in LITERAL.finditer(source)}


def restamp(source: str, stamp: str) -> str:
    """The source text with every literal replaced by ``stamp``."""
    return LITERAL.sub(rf"\g<1>{stamp}\g<3>", source)


def main() -> int:
    """Command line: 0 if the literals are current (or were rewritten), 1 if ``--check`` finds them stale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the literals are stale")
    check_only = parser.parse_args().check
    stamp = compute_stamp()
    stale = [path for path in STAMPED_FILES if stamps_in(path.read_text(encoding="utf-8")) != {stamp}]
    if not stale:
        print(f"the stamps are current: {stamp}")
        return 0
    for path in stale:
        source = path.read_text(encoding="utf-8")
        if check_only:
            print(f"{path.name} carries {sorted(stamps_in(source))}, the lowerings have {stamp}; run this without --check")
        else:
            path.write_text(restamp(source, stamp), encoding="utf-8")
            print(f"{path.name} now carries {stamp}")
    return 1 if check_only else 0


if __name__ == "__main__":
    raise SystemExit(main())
