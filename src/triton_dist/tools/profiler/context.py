"""From a buffer to a trace: of this rank alone, or of all ranks together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from ...runtime.world import current_world
from .buffer import alloc_profiler_buffer, reset_profiler_buffer
from .clocks import ClockReading
from .overlap import Overlap, overlap
from .profile import Profile, checked_names, gather_profile, rank_profile, read_clock
from .trace import check_trace_file, write_trace


def export_to_perfetto_trace(
    profiler_buffer: torch.Tensor, task_names: Sequence[str], file_name: str | Path, verbose: bool = False
) -> Profile:
    """Write what this rank recorded to ``file_name``, which ui.perfetto.dev opens; ``export_merged_trace`` has all ranks in one.

    task_names: the name of each type of task, the first one of task 0. file_name: ``.json`` is Chrome's format, any other ending
    Perfetto's, which needs the package perfetto. verbose: print a line for each type of task. Waits for this rank's device work. Returns
    what was written. Raises InvalidArgumentError; warns (LostRecordsWarning) of records that are missing.
    """
    check_trace_file(file_name)
    profile = Profile([rank_profile(profiler_buffer)], checked_names(task_names))
    path = write_trace(profile, file_name)
    if verbose:
        _say(summary(profile), path)
    return profile


def export_merged_trace(
    profiler_buffer: torch.Tensor,
    task_names: Sequence[str],
    file_name: str | Path,
    *,
    before: ClockReading | None = None,
    communication: Sequence[str] = (),
    compute: Sequence[str] = (),
    verbose: bool = False,
) -> Profile:
    """Write what all ranks recorded to one file, on rank 0's clock, with an arrow from each notify to the wait that it ended.

    Every rank calls it, with its own buffer; rank 0 writes, and prints the share of the ``communication`` tasks' time in which ``compute``
    tasks run, where both are given. before: this rank's clock (``measure_clock()``) before the kernels; without it the clocks' drift since
    then is not known. Other arguments, errors and warnings as ``export_to_perfetto_trace``. Returns what all ranks recorded, on each.
    """
    check_trace_file(file_name)
    communication, compute = checked_names(communication, "communication"), checked_names(compute, "compute")
    own = rank_profile(profiler_buffer, before, read_clock())
    profile = gather_profile(own, task_names)
    overlaps = overlap(profile, communication, compute) if communication or compute else []
    if own.rank == 0:
        path = write_trace(profile, file_name, overlaps)
        lines = [str(of_rank) for of_rank in overlaps]
        if verbose or lines:
            _say([*(summary(profile) if verbose else ()), *lines], path)
    return profile


class ProfilerBuffer:
    """A buffer whose contents are written to a trace at the end of a ``with`` block.

    ``with ProfilerBuffer(100_000, "out/trace.pftrace", ["load", "product"]) as profiler: kernel[grid](profiler.profiler_buffer, ...)``

    Arguments as of ``alloc_profiler_buffer`` and ``export_merged_trace``. With ``merge``, in a world of several ranks, every rank enters
    and leaves the block, and rank 0 writes what all of them recorded; without, each rank writes its own, to a file of its own: the rank is
    put before the ending (``trace.rank1.json``) unless it is the last number of the name already. A block that is entered again begins
    with an empty buffer, and writes over the file.
    Where the body raises nothing is written. profile: what was written. overlaps: by rank, as printed. Raises InvalidArgumentError.
    """

    def __init__(
        self,
        max_num_profile_slots: int,
        trace_file: str | Path,
        task_names: Sequence[str],
        *,
        communication: Sequence[str] = (),
        compute: Sequence[str] = (),
        merge: bool = True,
        verbose: bool = False,
    ) -> None:
        self.trace_file = check_trace_file(trace_file)
        if not merge:
            self.trace_file = check_trace_file(_of_this_rank(self.trace_file))
        self.task_names = checked_names(task_names)
        self.communication, self.compute = checked_names(communication, "communication"), checked_names(compute, "compute")
        Profile([], self.task_names).type_numbers([*self.communication, *self.compute])
        self.merge, self.verbose = merge, verbose
        self.profiler_buffer = alloc_profiler_buffer(max_num_profile_slots)
        self.profile: Profile | None = None
        self._before: ClockReading | None = None
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            reset_profiler_buffer(self.profiler_buffer)
        self._entered = True
        if self.merge:
            self._before = read_clock()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None:
            return
        if not self.merge:
            self.profile = export_to_perfetto_trace(self.profiler_buffer, self.task_names, self.trace_file, self.verbose)
            return
        self.profile = export_merged_trace(
            self.profiler_buffer, self.task_names, self.trace_file,
            before=self._before, communication=self.communication, compute=self.compute, verbose=self.verbose,
        )  # fmt: skip

    @property
    def overlaps(self) -> list[Overlap]:
        """Of each rank whose trace was written."""
        if self.profile is None or not (self.communication or self.compute):
            return []
        return overlap(self.profile, self.communication, self.compute)


def _of_this_rank(path: Path) -> Path:
    """A path that no other rank has made of the same one."""
    here = current_world()
    numbers = re.findall(r"\d+", path.stem)
    if here is None or here.world_size == 1 or numbers and int(numbers[-1]) == here.rank:
        return path
    return path.with_name(f"{path.stem}.rank{here.rank}{path.suffix}")


def summary(profile: Profile) -> list[str]:
    """A line for each rank and type of task: how many there are, and how long they take together and in the mean."""
    lines = []
    for rank in profile.ranks:
        durations: dict[int, list[int]] = {}
        for track in rank.tracks:
            for task in track.tasks:
                durations.setdefault(task.type, []).append(task.duration or 0)
        for task_type, times in sorted(durations.items()):
            whole = sum(times) / 1e3
            lines.append(f"rank {rank.rank}: {len(times)} x {profile.name(task_type)}, {whole:.1f} us, {whole / len(times):.2f} us each")
    return lines


def _say(lines: Sequence[str], path: Path) -> None:
    print("\n".join([*lines, f"trace: {path}"]), flush=True)
