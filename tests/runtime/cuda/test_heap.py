"""The symmetric heap of CUDA worlds on processes that share memory through a fake driver: the scenarios of ``scenarios/``."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.cuda.scenarios.all import SCENARIOS
from triton_dist.errors import InvalidArgumentError, UnreachablePeerError
from triton_dist.runtime.cuda.world import CudaWorld

ROOT = Path(__file__).parents[3]
ANY_SIZE = (
    "allocations_have_one_offset",
    "peers_see_each_other",
    "requests_are_checked",
    "children_are_not_ranks",
    "adopted_memory_is_symmetric",
    "kernels_without_a_world_have_a_page",
    "a_world_takes_the_page_and_gives_it_back",
)
"""Scenarios that make sense on any number of ranks; the others are written for four."""

CASES = [(4, scenario.__name__) for scenario in SCENARIOS] + [(size, name) for size in (1, 3) for name in ANY_SIZE]


@functools.cache
def outcomes(ranks: int) -> dict[str, list[str]]:
    """What each scenario says on each rank; all of them run in one set of processes."""
    chosen = [name for size, name in CASES if size == ranks]
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.cuda.scenarios", str(ranks), *chosen],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=450,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize(("ranks", "scenario"), CASES)
def test_scenario(ranks, scenario):
    wrong = {rank: said for rank, said in enumerate(outcomes(ranks)[scenario]) if said != "right"}
    assert not wrong, "\n".join(f"rank {rank}:\n{said}" for rank, said in wrong.items())


def test_interpreter_exit(tmp_path):
    """A process that ends with a world, tensors, views and cycles of them alive ends quietly."""
    program = f"""
import atexit
import torch, torch.distributed as dist, triton_dist
from tests.runtime.cuda import fake_driver, fake_world
fake_world.use_fake(fake_driver.FakeDriver())
dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
world = fake_world.FakeWorld()
tensor = triton_dist.symm_zeros(100).requires_grad_()
graph = (tensor * tensor).sum()
ring = [triton_dist.symm_zeros(10)[1:]]
ring.append(ring)
atexit.register(dist.destroy_process_group)  # else gloo's threads may end the process by abort, world or not
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_world_that_is_too_large():
    world = object.__new__(CudaWorld)
    world.world_size, world.num_nodes = 128, 1
    with pytest.raises(InvalidArgumentError, match="128 ranks are more than the 127"):
        world._check_place()
    world.world_size, world.num_nodes = 8, 2
    with pytest.raises(UnreachablePeerError, match="2 hosts"):
        world._check_place()
