"""The pool of worker processes, with workers that need no GPU: results, errors, hangs, deaths, and what is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl

from tests.worlds import gpus
from tests.worlds import pool as pool_module
from tests.worlds.messages import Answer, Job, pack, pack_answer, unpack
from tests.worlds.pool import ROOT, WorkerError, WorkerPool
from tests.worlds.world import GpuWorld
from triton_dist import errors

MACHINE = "tests.worlds.machines:Processes"


@pytest.fixture(scope="module")
def workers():
    made = WorkerPool(2, MACHINE)
    yield made
    made.close()


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr(pool_module, "GRACE", 0.5)


@triton.jit
def some_kernel(out):
    tl.store(out, 1)


def who() -> tuple[int, int, int]:
    return dist.get_rank(), dist.get_world_size(), os.getpid()


def summed(value: float, *, times: int) -> torch.Tensor:
    total = torch.full((2,), value * times * (dist.get_rank() + 1))
    dist.all_reduce(total)
    return total


def same_object(kernel) -> bool:
    return kernel is sys.modules[__name__].some_kernel


def fail_on(ranks: list[int], *, then_meet: bool = False) -> str:
    if dist.get_rank() in ranks:
        raise errors.HeapFullError(f"no room on rank {dist.get_rank()}")
    if then_meet:
        dist.barrier()
    return "fine"


def hang_on(rank: int) -> None:
    print("about to hang", flush=True)
    while dist.get_rank() == rank:
        time.sleep(60)


def die_on(rank: int) -> None:
    if dist.get_rank() == rank:
        os.kill(os.getpid(), signal.SIGKILL)


def gives_what_cannot_be_sent():
    return lambda: 1


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def fails_with_what_cannot_be_sent():
    raise Unpicklable("this", "that")


def exists(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as state:
            return state.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int]) -> bool:
    """Whether these processes end within seconds."""
    deadline = time.monotonic() + 10
    while any(exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(exists(pid) for pid in pids)


def test_jobs_run_in_one_world_that_stays(workers):
    first = workers.run(who)
    assert [(rank, size) for rank, size, _ in first] == [(0, 2), (1, 2)]
    assert workers.run(who) == first
    assert all(torch.equal(total, torch.full((2,), 18.0)) for total in workers.run(summed, (2.0,), {"times": 3}))


def test_kernels_go_by_name(workers):
    assert workers.run(same_object, (some_kernel,)) == [True, True]


def test_an_error_of_all_ranks_leaves_the_workers(workers):
    before = workers.run(who)
    with pytest.raises(errors.HeapFullError, match="no room on rank 0") as caught:
        workers.run(fail_on, ([0, 1],))
    assert "on rank 0 of 2" in caught.value.__notes__[0] and "in fail_on" in caught.value.__notes__[0]
    assert workers.run(who) == before


def test_an_error_of_one_rank_restarts_the_workers(workers, short_grace):
    """The other rank waits for it in a collective."""
    before = [pid for _, _, pid in workers.run(who)]
    with pytest.raises(errors.HeapFullError, match="no room on rank 1") as caught:
        workers.run(fail_on, ([1],), {"then_meet": True})
    assert gone(before)
    assert "on rank 1 of 2" in caught.value.__notes__[0]
    after = [pid for _, _, pid in workers.run(who)]
    assert not set(before) & set(after)


def test_a_hang_ends_and_the_next_job_runs(workers, short_grace):
    before = [pid for _, _, pid in workers.run(who)]
    with pytest.raises(WorkerError, match=r"hang_on: ranks \[1\] had not answered after 5 s(.|\n)*about to hang"):
        workers.run(hang_on, (1,), timeout=5)
    assert gone(before)
    assert len(workers.run(who)) == 2


def test_a_death_is_told(workers, short_grace):
    with pytest.raises(WorkerError, match=r"die_on: rank 0 died \(exit code -9\)"):
        workers.run(die_on, (0,))
    assert len(workers.run(who)) == 2


def test_what_cannot_be_sent_is_named(workers):
    with pytest.raises(TypeError, match="functions of a module"):
        workers.run(lambda: 1)
    with pytest.raises(TypeError, match="result of type function"):
        workers.run(gives_what_cannot_be_sent)
    with pytest.raises(RuntimeError, match="Unpicklable: this and that"):
        workers.run(fails_with_what_cannot_be_sent)
    assert len(workers.run(who)) == 2


def test_a_world_that_cannot_start_is_told():
    broken = WorkerPool(2, "tests.worlds.machines:NoSuchMachine")
    with pytest.raises(WorkerError, match=r"the start of the workers: rank 0 died(.|\n)*NoSuchMachine"):
        broken.run(who)
    broken.close()


def test_gpu_workers_say_why_they_do_not_start():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    broken = WorkerPool(2, "tests.worlds.machines:Gpus")
    with pytest.raises(errors.NotInitializedError, match="no GPU here"):
        broken.run(who)
    assert broken.starts == 1 and not broken._workers


def test_closing_ends_the_workers():
    workers = WorkerPool(1, MACHINE)
    pids = [pid for _, _, pid in workers.run(who)]
    workers.close()
    assert gone(pids)


def test_no_worker_outlives_the_test_process():
    """Also when the test process is killed while a job hangs."""
    code = """
import sys
from tests.test_worker_pool import MACHINE, hang_on, who
from tests.worlds.pool import WorkerPool
workers = WorkerPool(2, MACHINE)
print(*[pid for _, _, pid in workers.run(who)], flush=True)
workers.run(hang_on, (0,), timeout=600)
"""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(pids)


def test_messages():
    job = Job(summed, (some_kernel, torch.float16), {"times": 2})
    assert unpack(pack(job)) == job
    assert unpack(pack_answer(Answer(result=[1, "a"]))) == Answer(result=[1, "a"])
    assert str(unpack(pack_answer(Answer(error=errors.HeapFullError("full")))).error) == "full"


@pytest.mark.parametrize(
    ("worker", "named", "gives"),
    [("gw0", "0,1,2,3", "0,1,2,3"), ("gw3", "0,1,2,3", "3,0,1,2"), ("gw5", "4,6", "6,4"), ("", "0,1", "0,1"), ("gw1", "", "")],
)
def test_workers_of_pytest_start_at_different_gpus(worker, named, gives, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    gpus.start_at_own(worker)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == gives
    assert gpus.first() == (gives or "0").split(",")[0]


def test_a_gpu_world_keeps_the_pools_used_last(monkeypatch):
    monkeypatch.setattr(WorkerPool, "close", lambda pool: closed.append(pool.world_size))
    closed: list[int] = []
    world = GpuWorld(4, shared=False)
    two = world.pool(2)
    world.pool(4)
    assert world.pool(2) is two
    world.pool(3)
    assert closed == [4] and world.pool(2) is two
    world.close()
    assert sorted(closed) == [2, 3, 4]
