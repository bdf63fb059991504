"""Timing and torch profiles of a function on all ranks."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from .errors import InvalidArgumentError
from .runtime import streams, world

if TYPE_CHECKING:
    import torch.distributed as dist

PERF_ITERS = "TRITON_DIST_PERF_ITERS"
"""Environment variable: at most so many rounds, and warm-up rounds, of ``perf_func``. ``triton-dist run --perf-iters`` sets it."""


def perf_func(func: Callable[[], Any], iters: int, warmup_iters: int) -> tuple[Any, float]:
    """Call ``func`` ``warmup_iters`` times, then ``iters`` times between two events of the current stream.

    Returns its last result and the milliseconds a call takes: of the GPU, or simulated ones. The variable TRITON_DIST_PERF_ITERS bounds
    both numbers. Raises InvalidArgumentError for ``iters`` below 1.
    """
    iters, warmup_iters = bounded_rounds(iters, warmup_iters)
    begin, end = _event(), _event()
    for _ in range(warmup_iters):
        func()
    _synchronize()
    begin.record()
    for _ in range(iters):
        output = func()
    end.record()
    _synchronize()
    return output, begin.elapsed_time(end) / iters


def perf_func_with_l2_reset(func: Callable[[], Any], iters: int, warmup_iters: int) -> tuple[Any, float]:
    """As ``perf_func``, with the L2 cache emptied before each call (not in the simulator, whose cache is modelled by itself)."""
    iters, warmup_iters = bounded_rounds(iters, warmup_iters)
    simulated = hasattr(world.current_world(), "machine")
    cache = None if simulated else torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    spans = []
    for number in range(warmup_iters + iters):
        if cache is not None:
            cache.zero_()
        begin, end = _event(), _event()
        begin.record()
        output = func()
        end.record()
        if number >= warmup_iters:
            spans.append((begin, end))
    _synchronize()
    return output, sum(begin.elapsed_time(end) for begin, end in spans) / iters


def bounded_rounds(iters: int, warmup_iters: int) -> tuple[int, int]:
    """Both numbers, at most what TRITON_DIST_PERF_ITERS says. Raises InvalidArgumentError."""
    if iters < 1 or warmup_iters < 0:
        raise InvalidArgumentError(f"iters={iters} must be at least 1, warmup_iters={warmup_iters} at least 0")
    text = os.environ.get(PERF_ITERS, "")
    if not text:
        return iters, warmup_iters
    if not text.isdigit() or int(text) < 1:
        raise InvalidArgumentError(f"{PERF_ITERS}={text!r} is not a positive number")
    return min(iters, int(text)), min(warmup_iters, int(text))


def _event() -> Any:
    return streams.Event() if world.is_initialized() else torch.cuda.Event(enable_timing=True)


def _synchronize() -> None:
    if world.is_initialized():
        streams.synchronize()
    else:
        torch.cuda.synchronize()


def get_torch_prof_ctx(do_prof: bool) -> contextlib.AbstractContextManager:
    """``torch.profiler.profile`` of host and GPU, or a context that does nothing."""
    return _profile(with_stack=False) if do_prof else contextlib.nullcontext()


def _profile(with_stack: bool) -> torch.profiler.profile:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=activities, record_shapes=True, with_stack=with_stack)


class group_profile:  # noqa: N801  (upstream's name)
    """Profile the body on every rank of ``group`` and write one Chrome trace, ``prof/<name>_merged.json``, with all ranks side by side.

    do_prof: False makes it do nothing. merge_group: False leaves one file a rank, ``prof/<name>/rank<r>.json``, as does
    ``keep_merged_only=False`` beside the merged one. compress: the merged file is compressed (``.json.gz``).
    group: default all ranks; every member enters and leaves. In the simulator, whose ranks are threads of one process, only rank 0's
    profile is taken, of the host, and it has all ranks' threads in it.
    """

    def __init__(
        self,
        name: str,
        do_prof: bool = True,
        merge_group: bool = True,
        keep_merged_only: bool = True,
        compress: bool = True,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.name = name
        self.do_prof = do_prof
        self.merge_group = merge_group
        self.keep_merged_only = keep_merged_only
        self.compress = compress
        self.group = group
        self.profile: torch.profiler.profile | None = None

    def __enter__(self) -> None:
        if not self.do_prof:
            return
        self._rank, self._size = self._place()
        simulated = hasattr(world.current_world(), "machine")
        if not simulated or self._rank == 0:
            self.profile = _profile(with_stack=not simulated)
            self.profile.__enter__()

    def _place(self) -> tuple[int, int]:
        import torch.distributed as dist

        if not dist.is_initialized():
            return 0, 1
        return dist.get_rank(self.group), dist.get_world_size(self.group)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if not self.do_prof:
            return
        if self.profile is not None:
            _synchronize()
            self.profile.__exit__(kind, error, traceback)
        if error is not None:
            return
        file = Path("prof") / self.name / f"rank{self._rank}.json"
        if self.profile is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.profile.export_chrome_trace(str(file))
        if self.merge_group:
            self._merge(file)

    def _merge(self, file: Path) -> None:
        import torch.distributed as dist

        trace = json.loads(file.read_text(errors="replace"), strict=False) if self.profile is not None else None
        traces: list[Any] = [trace]
        if self._size > 1:
            traces = [None] * self._size
            dist.all_gather_object(traces, trace, group=self.group)
        if self._rank == 0:
            _write_merged(Path("prof") / f"{self.name}_merged.json", traces, self.compress)
        if self.keep_merged_only and self.profile is not None:
            file.unlink()
            with contextlib.suppress(OSError):  # another rank's file is still there
                file.parent.rmdir()


def _write_merged(path: Path, traces: list[Any], compress: bool) -> None:
    """One trace of all ranks' events; names and numbers of processes tell the rank."""
    events = []
    for rank, trace in enumerate(traces):
        for event in (trace or {}).get("traceEvents", ()):
            event = dict(event)
            if "pid" in event:
                event["pid"] = f"rank {rank}: {event['pid']}"
            events.append(event)
    text = json.dumps({"traceEvents": events})
    if compress:
        with gzip.open(f"{path}.gz", "wt") as file:
            file.write(text)
    else:
        path.write_text(text)
    print(f"profile of {len(traces)} rank(s): {path}{'.gz' if compress else ''}", file=sys.stderr)
