"""Triton's own profiler beside this one: its hooks stay in the chain and see the launches of kernels with records in them.

Proton's sessions need a GPU's driver; here are its hooks, as a session puts them into Triton's chain.
"""

from __future__ import annotations

import pytest
import torch
from triton import knobs

import triton_dist
from tests.tools.profiler.kernels import rounds_kernel
from triton_dist.tools.profiler import ProfilerBuffer

launch = pytest.importorskip("triton.profiler.hooks.launch", reason="needs Proton, which comes with Triton")


def test_the_hooks_of_others_stay_and_see_every_launch(tmp_path):
    seen: list[str] = []

    class Watched(launch.LaunchHook):
        """Proton's hook, of which only what it would hand to a session is watched."""

        def enter(self, metadata):
            seen.append(f"proton: {metadata.get()['name']}")

        def exit(self, metadata):
            seen.append("proton: end")

    def of_user(metadata):
        seen.append(f"user: {metadata.get()['name']}")

    hook = Watched()
    before = list(knobs.runtime.launch_enter_hook.calls), list(knobs.runtime.launch_exit_hook.calls)
    knobs.runtime.launch_enter_hook.add(of_user)
    knobs.runtime.launch_enter_hook.add(hook.enter)
    knobs.runtime.launch_exit_hook.add(hook.exit)
    chain = list(knobs.runtime.launch_enter_hook.calls)

    def run():
        with ProfilerBuffer(400, tmp_path / "trace.json", ["outer"]) as profiler:
            rounds_kernel[(1,)](profiler.profiler_buffer, torch.zeros(64), 1, GROUP=0, LEADER=False)
        assert profiler.profile is not None
        return len(profiler.profile.ranks[0].tracks)

    try:
        assert triton_dist.simulate(run, 1) == [1]
        assert list(knobs.runtime.launch_enter_hook.calls) == chain, "no hook was replaced, and none of this package's was added"
    finally:
        knobs.runtime.launch_enter_hook.remove(of_user)
        knobs.runtime.launch_enter_hook.remove(hook.enter)
        knobs.runtime.launch_exit_hook.remove(hook.exit)
    assert sorted(seen) == ["proton: end", "proton: rounds_kernel", "user: rounds_kernel"]
    assert (list(knobs.runtime.launch_enter_hook.calls), list(knobs.runtime.launch_exit_hook.calls)) == before
