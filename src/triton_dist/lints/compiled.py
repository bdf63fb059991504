"""Lints of what the compiler made of a kernel (``triton_dist.compiled_checks``)."""

from __future__ import annotations

from .lint import Lint

COMPILED: tuple[Lint, ...] = (
    Lint("TD201", "load-before-wait", "A load that comes after a wait in the source is issued before it, or merged with one before it."),
    Lint("TD202", "unfinished-bulk-store", "A word is released while a TMA store before it may still be under way."),
    Lint("TD203", "partition-without-wait", "A partition of a warp-specialised loop loads what a wait guards that it has no copy of."),
    Lint("TD204", "signal-in-wrong-partition", "A signal in a warp-specialised loop is given by no partition, or by several."),
    Lint("TD205", "wait-in-pipelined-loop", "A wait stands in a loop whose loads Triton would pipeline.", warns=True),
    Lint("TD206", "narrow-remote-access", "A tile of another rank's memory is accessed by less than 16 bytes a thread.", warns=True),
    Lint("TD207", "does-not-compile", "A kernel that ran on the simulator does not compile for a GPU."),
    Lint("TD208", "bulk-load-without-proxy-fence", "A TMA load after a wait has no proxy fence before it, and may read old data."),
)
