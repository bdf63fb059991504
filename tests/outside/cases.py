"""Test cases of torch's multi-process classes, run by ``triton-dist run``: each simulated rank runs the body of its own process.

    triton-dist run --ranks 4 tests/outside/cases.py [--go-on] FILE [NAME ...] [not:NAME ...]

FILE is a test file that nobody here wrote; it starts processes by ``MultiProcessTestCase`` or ``MultiProcContinuousTest``, which here are
the ranks that there are. Modules beside its folder can be imported. NAME: parts of names of tests; by default all, but for those after
"not:". The first test that fails ends the run with its error; with ``--go-on`` the others are run, too, where every rank came back from it,
and the exit code is 1. Prints one line a test on rank 0: passes, is skipped (why) or fails (the error, and on which rank).
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
import unittest
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from torch.testing._internal import common_cuda, common_distributed, common_utils

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


SKIPS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}
"""What the exit codes mean by which torch's decorators tell the process that started the others why a test is skipped."""

failed: list[str] = []
"""Names of tests of this rank."""


def main() -> int:
    go_on = "--go-on" in sys.argv
    path, *names = (argument for argument in sys.argv[1:] if argument != "--go-on")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    _ranks_are_there()
    sys.path.append(str(Path(path).resolve().parents[1]))
    module = _load(Path(path))
    without = [name.removeprefix("not:") for name in names if name.startswith("not:")]
    wanted = [name for name in names if not name.startswith("not:")]
    found = 0
    for case in unittest.defaultTestLoader.loadTestsFromModule(module):
        for test in case:  # type: ignore[union-attr]
            if any(name in test.id() for name in wanted or [""]) and not any(name in test.id() for name in without):
                found += 1
                _run(test, go_on)
        if dist.is_initialized():
            dist.destroy_process_group()  # the next class makes its own
    if not found:
        raise LookupError(f"{path} has no test of these names: {names}")
    return 1 if failed else 0


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ranks_are_there() -> None:
    """No process is started: this one is the rank. A test that wants more GPUs than there are ranks is run all the same."""

    def spawn(self: common_distributed.MultiProcessTestCase) -> None:
        self.rank = int(os.environ["RANK"])  # torch's modules are one for all ranks of this process
        names: list[str | None] = [self.file_name]
        dist.init_process_group("gloo")
        dist.broadcast_object_list(names)
        dist.destroy_process_group()
        self.file_name = names[0]

    def set_up(self: common_distributed.MultiProcContinuousTest) -> None:
        super(common_distributed.MultiProcContinuousTest, self).setUp()
        self.rank = int(os.environ["RANK"])

    common_distributed.MultiProcessTestCase._spawn_processes = spawn  # type: ignore[method-assign]
    common_distributed.MultiProcContinuousTest.setUp = set_up  # type: ignore[method-assign]
    common_distributed.skip_if_lt_x_gpu = lambda count, **options: lambda function: function
    common_cuda._get_torch_cuda_version = lambda: (13, 0)  # a torch that is built for the CPU says that it has none


def _run(test: unittest.TestCase, go_on: bool) -> None:
    """Run one test in this rank. Raises what it raises, unless the others are to go on."""
    kind = type(test)
    name = test.id().rpartition(".")[2]
    keeps_group = issubclass(kind, common_distributed.MultiProcContinuousTest)
    if keeps_group:
        kind.rank, kind.world_size = RANK, WORLD_SIZE  # type: ignore[attr-defined]
        if not dist.is_initialized():
            dist.init_process_group("nccl", rank=RANK, world_size=WORLD_SIZE)
    else:
        kind.world_size = property(lambda self: WORLD_SIZE)  # type: ignore[attr-defined]
    outcome = "passes"
    try:
        test.setUp()
        common_utils.set_rng_seed()
        getattr(test, name)()
        torch.cuda.synchronize()
    except unittest.SkipTest as skipped:
        outcome = f"is skipped: {skipped}"
    except SystemExit as left:
        if left.code not in SKIPS:
            raise
        outcome = f"is skipped: {SKIPS[left.code]}"
    except Exception as error:
        if not go_on:
            raise
        outcome = f"fails on rank {RANK}: {type(error).__name__}: {error}".partition("\n")[0]
    gc.collect()  # the end of a process frees what refers to itself, too
    outcomes = _of_all(outcome) if go_on else [outcome]
    if dist.is_initialized():
        dist.barrier()
        if not keeps_group:
            dist.destroy_process_group()  # where each test has processes of its own, their end does it
    failures = [outcome for outcome in outcomes if outcome.startswith("fails")]
    failed.extend([name] * bool(failures))
    if RANK == 0:
        print(f"{kind.__name__}.{name} {(failures or outcomes)[0]}", flush=True)


def _of_all(outcome: str) -> list[str]:
    """What came of a test on each rank."""
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    outcomes: list[str] = [""] * WORLD_SIZE
    dist.all_gather_object(outcomes, outcome)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
