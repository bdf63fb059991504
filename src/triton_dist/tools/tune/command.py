"""The command ``triton-dist tune``: started by torchrun on each rank's GPU; rank 0 shows the progress and writes the file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

HOW = "torchrun --nproc-per-node 4 --no-python triton-dist tune"
_HEAP_FACTOR = 5
"""Heap in units of the largest message: what the methods keep for all sizes up to it."""


def tune(*, operators: Sequence[str], max_bytes: int, budget: float | None, dry_run: bool, ranks: int) -> int:
    """Exit code: 0 when the table was written (or in a dry run shown), 2 where it can't be measured here, with what to do."""
    import torch

    from .candidates import TUNABLE
    from .sweep import SIZES

    unknown = set(operators) - set(TUNABLE)
    sizes = [size for size in SIZES if size <= max_bytes]
    if unknown or not sizes:
        print(
            f"triton-dist tune: operators: {', '.join(TUNABLE)}; sizes from {SIZES[0]} bytes on: nothing to do for "
            f"{', '.join(sorted(unknown)) or f'--max-bytes {max_bytes}'}",
            file=sys.stderr,
        )
        return 2
    if dry_run:
        return _dry(operators, sizes[: 1 if len(sizes) == 1 else 2], ranks)
    if not torch.cuda.is_available():
        print(
            "triton-dist tune: torch finds no GPU here, and there is nothing to tune; --dry-run runs its code on simulated ranks",
            file=sys.stderr,
        )
        return 2
    if "RANK" not in os.environ:
        print(f"triton-dist tune: every GPU needs a rank of its own; start it as: {HOW}", file=sys.stderr)
        return 2
    return _on_gpus(operators, sizes, budget)


def _dry(operators: Sequence[str], sizes: Sequence[int], ranks: int) -> int:
    import torch.distributed as dist

    from ... import simulate

    def body() -> object:
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        return _sweep(operators, sizes, None, dry=True)

    table = simulate(body, ranks, heap_size=1 << 28)[0]
    print(table.to_json(), end="")
    print("A dry run: its times mean nothing, and nothing was written.")
    return 0


def _on_gpus(operators: Sequence[str], sizes: Sequence[int], budget: float | None) -> int:
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    from ... import finalize, initialize
    from ...ops.collectives.plans import gpu_name, table_path

    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=timedelta(seconds=120), device_id=device)
    initialize(heap_size=_HEAP_FACTOR * max(sizes) + (256 << 20), wait_timeout=60.0)
    torch.cuda.set_stream(torch.cuda.Stream())
    table = _sweep(operators, sizes, budget, dry=False)
    if dist.get_rank() == 0:
        path = table_path(gpu_name(device), dist.get_world_size())
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(table.to_json(), encoding="utf-8")
        partial.replace(path)
        print(f"written: {path}")
    dist.barrier()
    finalize()
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


def _sweep(operators: Sequence[str], sizes: Sequence[int], budget: float | None, *, dry: bool) -> Any:
    """The table of this world; rank 0 shows what is done."""
    import torch
    import triton

    from ...ops.collectives.plans import gpu_name
    from ...runtime.world import require_world
    from .measure import Timed, gather
    from .sweep import sweep

    world, begin = require_world("tune"), time.monotonic()
    environment = {"torch": torch.__version__, "triton": triton.__version__, "cuda": str(torch.version.cuda)}
    shown = _Progress(len(operators) * len(sizes)) if world.rank == 0 and not dry else None

    def report(operator: str, nbytes: int, results: Sequence[Timed]) -> None:
        if shown is not None:
            shown.done(operator, nbytes, results)

    def end() -> bool:
        return budget is not None and bool(gather(time.monotonic() - begin > budget)[0])

    with shown or _Nothing():
        return sweep(gpu_name(world.device), environment, operators, sizes, report, end)


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class _Progress:
    """A progress bar, and a line for each size."""

    def __init__(self, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self._bar.add_task("tuning", total=total)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def done(self, operator: str, nbytes: int, results: Sequence[Any]) -> None:
        """Say how a size came out."""
        self._bar.console.print(line_of(operator, nbytes, results), highlight=False, markup=False, soft_wrap=True)
        self._bar.advance(self._task)


def line_of(operator: str, nbytes: int, results: Sequence[Any]) -> str:
    """One size in one line: the best plan, the best of each other method, and what is out."""
    times: dict[str, Any] = {}
    for timed in results:
        if timed.us is not None and (timed.plan.method not in times or timed.us < times[timed.plan.method].us):
            times[timed.plan.method] = timed
    out = sorted({f"{timed.plan.method}: {timed.why}" for timed in results if timed.why})
    shown = []
    for timed in sorted(times.values(), key=lambda timed: timed.us):
        plan = timed.plan
        facts = (
            f" ({plan.programs} programs, {plan.warps} warps{f', {plan.load_bytes} bytes' if plan.load_bytes else ''})"
            if plan.programs
            else ""
        )
        shown.append(f"{plan.method} {timed.us:.1f} us{facts}")
    return f"{operator} {nbytes} bytes: {'; '.join(shown) or 'nothing was measured'}{'; out: ' + '; '.join(out) if out else ''}"
