"""Starting one process a GPU to measure together, and judging what they found: ``python -m triton_dist.tools.doctor.ranks`` is a rank."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from .finding import Finding, Status, by_pair

GROUP = "measured"
MARK = "TRITON_DIST_DOCTOR "
"""Begins the line on which rank 0 prints what was measured, as JSON."""
HEAP_SIZE = 256 << 20
SLOW_SIGNAL = 20.0
"""Microseconds one way; direct NVLink needs 1 to 3, PCIe somewhat more."""


class RanksError(Exception):
    """The ranks did not come to a result."""


def run_ranks(world_size: int, timeout: float, command: Sequence[str] | None = None) -> dict[str, Any]:
    """Start the ranks, wait at most ``timeout`` seconds, and leave none behind. command: of one rank, this module by default.

    Returns what rank 0 printed. Raises RanksError with the last lines of the first rank that failed.
    """
    command = list(command or [sys.executable, "-m", __spec__.name])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outputs = [tempfile.TemporaryFile() for _ in range(world_size)]  # noqa: SIM115  # closed below
    ranks: list[subprocess.Popen] = []
    try:
        for rank in range(world_size):
            environment = {**os.environ, **_launcher(rank, world_size, port)}
            # A session of its own, so that what a rank started ends with it.
            ranks.append(subprocess.Popen(command, env=environment, stdout=outputs[rank], stderr=subprocess.STDOUT, start_new_session=True))
        failed = _wait(ranks, time.monotonic() + timeout)
        texts = [_read(output) for output in outputs]
    finally:
        _kill(ranks)
        for output in outputs:
            output.close()
    if failed is not None:
        rank, what = failed
        raise RanksError(f"rank {rank} {what.format(timeout=timeout)}: {_last_lines(texts[rank])}")
    found = [line for line in texts[0].splitlines() if line.startswith(MARK)]
    if not found:
        raise RanksError(f"rank 0 printed no result: {_last_lines(texts[0])}")
    return json.loads(found[-1].removeprefix(MARK))


def _launcher(rank: int, world_size: int, port: int) -> dict[str, str]:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "MASTER_PORT": port}
    return {name: str(number) for name, number in numbers.items()} | {"MASTER_ADDR": "127.0.0.1"}


def _wait(ranks: Sequence[subprocess.Popen], deadline: float) -> tuple[int, str] | None:
    """None when all ended well, else the first rank that did not, and what it did."""
    while True:
        codes = [rank.poll() for rank in ranks]
        for rank, code in enumerate(codes):
            if code not in (None, 0):
                return rank, f"ended with code {code}"
        if all(code == 0 for code in codes):
            return None
        if time.monotonic() > deadline:
            return codes.index(None), "had not ended after {timeout:g} s"
        time.sleep(0.05)


def _kill(ranks: Sequence[subprocess.Popen]) -> None:
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGKILL)
        rank.wait()


def _read(output: Any) -> str:
    output.seek(0)
    return output.read().decode(errors="replace")


def _last_lines(text: str, count: int = 3) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-count:]) or "it printed nothing"


def judge_measured(measured: dict[str, Any]) -> list[Finding]:
    """Findings from what ``measure`` gives."""
    wrong = measured["wrong"]
    size = len(wrong)
    bad = [rank for rank, count in enumerate(wrong) if count]
    if bad:
        value, advice = f"wrong data on ranks {bad}", "peer memory is not coherent here: look for an IOMMU in the way, and report it"
        findings = [Finding(GROUP, "heap test", Status.MISSING, value, advice, wrong)]
    else:
        what = "allocated, written by the rank before, checked" if size > 1 else "allocated, written, checked"
        findings = [Finding(GROUP, "heap test", Status.OK, f"{size} ranks: {what}" if size > 1 else what, data=wrong)]
    if size < 2:
        alone = "there is one GPU"
        return [*findings, *(Finding(GROUP, name, Status.NOT_TESTED, alone) for name in ("signal latency", "copy engine", "push by SMs"))]
    findings.append(_latency(measured["latency"]))
    findings.append(_bandwidth("copy engine", measured["copy_engine"]))
    findings.append(_bandwidth("push by SMs", measured["push"]))
    return findings


def _latency(rows: list[list[float]]) -> Finding:
    values = [row[2] for row in rows]
    slow = max(values) > SLOW_SIGNAL
    value = f"{min(values):.2f} to {max(values):.2f} us one way, {len(rows)} pairs"
    advice = "slow pairs go through PCIe or share a GPU; see the links" if slow else ""
    return Finding(GROUP, "signal latency", Status.WARN if slow else Status.OK, value, advice, by_pair(rows, "us"))


def _bandwidth(name: str, rows: list[list[float]]) -> Finding:
    """A warning where one pair is much slower than another."""
    values = [row[2] for row in rows]
    uneven = min(values) < 0.5 * max(values)
    slowest = min(rows, key=lambda row: row[2])
    advice = f"GPU {slowest[0]:.0f} to {slowest[1]:.0f} is the slowest; see the links" if uneven else ""
    value = f"{min(values):.0f} to {max(values):.0f} GB/s, {len(rows)} directions, one at a time"
    return Finding(GROUP, name, Status.WARN if uneven else Status.OK, value, advice, by_pair(rows, "GB/s"))


def main() -> None:
    """What one rank of the measurement does; started by the doctor."""
    import torch

    import triton_dist

    from .measure import Sizes, measure

    if not torch.cuda.is_available():
        # initialize() would make the ranks CPU processes, and there is nothing to measure in those.
        raise triton_dist.errors.NotInitializedError("there is no GPU here to measure")
    triton_dist.initialize(heap_size=HEAP_SIZE)
    measured = measure(Sizes())
    if triton_dist.rank() == 0:
        print(MARK + json.dumps(measured), flush=True)
    triton_dist.finalize()


if __name__ == "__main__":
    main()
