"""Test cases of torch's multi-process classes, run by ``triton-dist run``: each simulated rank runs the body of its own process.

    triton-dist run --ranks 4 tests/outside/cases.py FILE [NAME ...]

FILE is a test file that nobody here wrote; it starts processes by ``MultiProcessTestCase`` or ``MultiProcContinuousTest``, which here are
the ranks that there are. Modules beside its folder can be imported. NAME: parts of names of tests; by default all. The first test that
fails ends the run with its error. Prints one line a test on rank 0.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest
from pathlib import Path
from types import ModuleType

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed, common_utils

RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main() -> int:
    path, *names = sys.argv[1:]
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    _ranks_are_there()
    sys.path.append(str(Path(path).resolve().parents[1]))
    module = _load(Path(path))
    found = 0
    for case in unittest.defaultTestLoader.loadTestsFromModule(module):
        for test in case:  # type: ignore[union-attr]
            if not names or any(name in test.id() for name in names):
                found += 1
                _run(test)
    if not found:
        raise LookupError(f"{path} has no test of these names: {names}")
    return 0


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

    common_distributed.MultiProcessTestCase._spawn_processes = spawn  # type: ignore[method-assign]
    common_distributed.skip_if_lt_x_gpu = lambda count, **options: lambda function: function


def _run(test: unittest.TestCase) -> None:
    """Run one test in this rank; raises what it raises."""
    kind = type(test)
    name = test.id().rpartition(".")[2]
    if issubclass(kind, common_distributed.MultiProcContinuousTest):
        kind.rank, kind.world_size = RANK, WORLD_SIZE
        if not dist.is_initialized():
            dist.init_process_group("nccl", rank=RANK, world_size=WORLD_SIZE)
    else:
        kind.world_size = property(lambda self: WORLD_SIZE)  # type: ignore[attr-defined]
    try:
        test.setUp()
        common_utils.set_rng_seed()
        getattr(test, name)()
        outcome = "passes"
    except unittest.SkipTest as skipped:
        outcome = f"is skipped: {skipped}"
    torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()
        if not issubclass(kind, common_distributed.MultiProcContinuousTest):
            dist.destroy_process_group()  # where each test has processes of its own, their end does it
    if RANK == 0:
        print(f"{kind.__name__}.{name} {outcome}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
