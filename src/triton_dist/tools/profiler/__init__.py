"""Time inside kernels: what each block does and when, on all ranks, in one trace. See docs/profiler.md.

``Profiler`` is what kernels record with; ``ProfilerBuffer``, or ``alloc_profiler_buffer`` and ``export_merged_trace``, what the host does.
"""

from .buffer import alloc_profiler_buffer, reset_profiler_buffer
from .clocks import Clock, ClockReading, measure_clock
from .context import ProfilerBuffer, export_merged_trace, export_to_perfetto_trace
from .language import Profiler
from .overlap import Overlap, overlap
from .profile import Profile, RankProfile
from .tracks import Notify, Task, Track, Word, parse_to_tracks

__all__ = [
    "Clock",
    "ClockReading",
    "Notify",
    "Overlap",
    "Profile",
    "Profiler",
    "ProfilerBuffer",
    "RankProfile",
    "Task",
    "Track",
    "Word",
    "alloc_profiler_buffer",
    "export_merged_trace",
    "export_to_perfetto_trace",
    "measure_clock",
    "overlap",
    "parse_to_tracks",
    "reset_profiler_buffer",
]
