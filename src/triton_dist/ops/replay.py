"""Calls that come again with the same tensors are replayed as one CUDA graph, so that an operator's host time is that of one launch.

A Triton launch with descriptors, the copies and the signals of one call cost the host some hundred microseconds one by one. The second
call with the same addresses, shapes and options is captured, later ones are replayed. A graph holds addresses, not tensors: it is only
replayed for a call that brings tensors at these addresses.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

import torch

from ..runtime.world import require_world
from .team import GrowingBuffer, Team

MOST_GRAPHS = 512
"""Graphs kept for one team and stream; calls beyond are queued one by one."""


class Replays:
    """The graphs of one rank, team and stream, by what a call looks like. They go with the team's workspaces, whose memory they use."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        self._growths = GrowingBuffer.growths
        self._stream: torch.cuda.Stream | None = None

    @staticmethod
    def here(what: str, team: Team) -> Replays | None:
        """Those of a team and the current stream. None if nothing is replayed: no GPU, in the user's capture, TRITON_DIST_REPLAY=0.

        what: the operator that asks. Raises NotInitializedError, and what a world that has failed raises.
        """
        world = require_world(what)
        if world.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return None
        key = ("replays", world.stream, team.ranks)
        replays = world.workspaces.get(key)
        if replays is None:
            if os.environ.get("TRITON_DIST_REPLAY") == "0":
                return None
            replays = world.workspaces[key] = Replays()
        return replays

    def find(self, key: Hashable) -> torch.cuda.CUDAGraph | None:
        """The graph of such a call, if it was captured; to be replayed on the current stream."""
        # Where a workspace has grown, the other ranks' calls use the new memory from now on, and so must this one's.
        return self._graphs.get(key) if self._growths == GrowingBuffer.growths else None

    def run(self, key: Hashable, enqueue: Callable[[], None]) -> None:
        """Queue a call by ``enqueue``; when it has been seen before, capture that and replay it.

        enqueue: queues work on the current stream, from which other streams may branch off and join again; allocates nothing.
        """
        if self._growths != GrowingBuffer.growths:
            self._graphs.clear()
            self._growths = GrowingBuffer.growths
        if key not in self._graphs:
            if len(self._graphs) < MOST_GRAPHS:
                self._graphs[key] = None
            enqueue()
            return
        known = self._graphs[key]
        if known is not None:  # the caller gave no output, so that ``find`` was not asked: its address is known only now
            known.replay()
            return
        graph = torch.cuda.CUDAGraph()
        self._stream = self._stream or torch.cuda.Stream()
        # Not torch.cuda.graph, which waits for the device first: work that is queued there may wait for what this host queues later on.
        with torch.cuda.stream(self._stream):
            graph.capture_begin(capture_error_mode="thread_local")  # other threads may go on allocating meanwhile
            try:
                enqueue()
            finally:
                graph.capture_end()
        self._graphs[key] = graph
        graph.replay()
