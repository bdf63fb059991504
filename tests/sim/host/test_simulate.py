"""simulate: results, one virtual process a rank, errors of a rank, and what is put back afterwards."""

import builtins
import contextlib
import io
import os
import random
import signal
import sys
import threading
import traceback
import warnings

import numpy as np
import pytest
import torch
import torch.distributed as dist

import triton_dist
from triton_dist.errors import DeadlockError, InvalidArgumentError, NestedSimulationError
from triton_dist.runtime import world
from triton_dist.sim.simulate import simulate

WORLD_SIZES = (1, 2, 3, 4, 8)


def start_torch_distributed():
    dist.init_process_group("gloo")


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_returns_one_result_for_each_rank(world_size):
    def fn(base, *, factor):
        return base + factor * world.rank()

    assert simulate(fn, world_size, args=(100,), kwargs={"factor": 2}) == [100 + 2 * rank for rank in range(world_size)]


def test_places_on_nodes():
    def fn():
        return world.node(), world.local_rank(), world.local_world_size(), world.num_nodes(), world.world_size()

    assert simulate(fn, 4, num_nodes=2) == [(0, 0, 2, 2, 4), (0, 1, 2, 2, 4), (1, 0, 2, 2, 4), (1, 1, 2, 2, 4)]


def test_environment_is_the_ranks_own_and_restored(monkeypatch):
    monkeypatch.setenv("RANK", "outer")
    monkeypatch.setenv("TRITON_DIST_TEST_REMOVED", "here")

    def fn():
        start_torch_distributed()
        os.environ["TRITON_DIST_TEST_OWN"] = os.environ["RANK"]
        if os.environ["RANK"] == "1":
            del os.environ["TRITON_DIST_TEST_REMOVED"]
        dist.barrier()
        assert os.getenv("TRITON_DIST_TEST_OWN") == str(world.rank())
        return os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"], "TRITON_DIST_TEST_REMOVED" in os.environ

    assert simulate(fn, 3) == [("0", "3", "0", True), ("1", "3", "1", False), ("2", "3", "2", True)]
    assert os.environ["RANK"] == "outer"
    assert os.environ["TRITON_DIST_TEST_REMOVED"] == "here"
    assert "TRITON_DIST_TEST_OWN" not in os.environ


def draw():
    return torch.rand(1).item(), float(np.random.rand()), random.random()


def test_random_states_are_the_ranks_own():
    def fn(seeded):
        start_torch_distributed()
        if seeded:
            torch.manual_seed(7), np.random.seed(7), random.seed(7)
        first = draw()
        dist.barrier()
        return first, draw()

    for seed in (0, 1, 2):
        plain, seeded = simulate(fn, 3, args=(False,), seed=seed), simulate(fn, 3, args=(True,), seed=seed)
        assert len({numbers for draws in plain for numbers in draws}) == 6, "ranks must not share a random state"
        assert seeded[0] == seeded[1] == seeded[2]
        assert plain == simulate(fn, 3, args=(False,), seed=seed + 10), "random numbers do not depend on the schedule"


def test_random_states_of_the_caller_are_untouched():
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    expected = draw()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    simulate(draw, 2)
    assert draw() == expected


def test_default_dtype_is_the_ranks_own():
    def fn():
        start_torch_distributed()
        if world.rank() == 1:
            torch.set_default_dtype(torch.float64)
        dist.barrier()
        return torch.ones(1).dtype

    assert simulate(fn, 2) == [torch.float32, torch.float64]
    assert torch.get_default_dtype() == torch.float32


def test_output_is_the_ranks_own(capsys):
    """Scripts silence all ranks but one by replacing ``sys.stdout`` or ``print``."""
    before = sys.stdout, sys.stderr, builtins.print

    def fn(silence):
        if world.rank() != 1:
            silence()
        start_torch_distributed()
        print(f"hello from {world.rank()}")
        dist.barrier()

    def replace_stdout():
        sys.stdout = sys.stderr = io.StringIO()

    def replace_print():
        builtins.print = lambda *values: None

    for silence in (replace_stdout, replace_print):
        simulate(fn, 3, args=(silence,))
        assert capsys.readouterr().out == "hello from 1\n"
        assert (sys.stdout, sys.stderr, builtins.print) == before


def test_hooks_and_settings_are_restored():
    hook, threads, filters = sys.excepthook, torch.get_num_threads(), list(warnings.filters)

    def fn():
        start_torch_distributed()
        torch.set_num_threads(threads + 1)
        torch.set_float32_matmul_precision("medium")
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True)

    simulate(fn, 2)
    assert sys.excepthook is hook
    assert warnings.filters == filters
    assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert not dist.is_initialized()


def test_triton_driver_is_restored_without_creating_one():
    from triton.runtime import driver

    before, default = driver._active, driver._default

    def fn():
        return type(driver.active).__name__

    assert simulate(fn, 2) == ["SimDriver", "SimDriver"]
    assert driver._active is before
    assert driver._default is default


@pytest.mark.parametrize("seed", range(4))
def test_same_seed_same_order_of_hosts(seed):
    def run():
        order = []

        def fn():
            start_torch_distributed()
            for _ in range(5):
                order.append(world.rank())
                dist.barrier()

        simulate(fn, 4, seed=seed)
        return order

    assert run() == run()


def test_different_seeds_give_different_orders():
    def run(seed):
        order = []
        simulate(lambda: order.append(world.rank()), 6, seed=seed)
        return tuple(order)

    assert len({run(seed) for seed in range(8)}) > 1


class Oops(Exception):
    pass


def test_error_of_a_rank_ends_the_run_with_its_traceback():
    cleaned = []

    def broken_function():
        raise Oops("on purpose")

    def fn():
        start_torch_distributed()
        try:
            if world.rank() == 2:
                broken_function()
            dist.barrier()
        finally:
            cleaned.append(world.rank())

    with pytest.raises(Oops, match="on purpose") as caught:
        simulate(fn, 4)
    assert caught.value.__notes__ == ["raised by rank 2 of 4"]
    assert "broken_function" in "".join(traceback.format_exception(caught.value))
    assert 2 in cleaned
    assert threading.active_count() == 1 or not any("triton_dist rank" in thread.name for thread in threading.enumerate())


def test_finally_blocks_of_the_other_ranks_run():
    cleaned = []

    def fn():
        start_torch_distributed()
        dist.barrier()
        if world.rank() == 0:
            dist.recv(torch.zeros(1), 1)  # every other rank is inside its try block by then
            raise Oops
        try:
            if world.rank() == 1:
                dist.send(torch.zeros(1), 0)
            dist.barrier()
        except Exception:
            cleaned.append("an Exception handler must not see the unwinding")
        finally:
            cleaned.append(world.rank())

    with pytest.raises(Oops):
        simulate(fn, 2)
    assert cleaned == [1]


@pytest.mark.parametrize("swallowed", [Exception, BaseException])
def test_rank_that_swallows_everything_does_not_hang(swallowed):
    def fn():
        start_torch_distributed()
        dist.barrier()
        if world.rank() == 0:
            raise Oops
        while True:
            with contextlib.suppress(swallowed):
                dist.barrier()

    with pytest.raises(Oops):
        simulate(fn, 3)
    assert simulate(world.rank, 2) == [0, 1]


def test_sys_exit():
    def fn(code):
        start_torch_distributed()
        if world.rank() == 1:
            sys.exit(code)
        return "went on"

    assert simulate(fn, 3, args=(0,)) == ["went on", None, "went on"]
    with pytest.raises(SystemExit) as caught:
        simulate(fn, 3, args=(3,))
    assert caught.value.code == 3


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only")
def test_keyboard_interrupt_stops_a_rank_that_computes():
    ended = []

    def fn():
        start_torch_distributed()
        dist.barrier()
        try:
            if world.rank() == 0:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                while True:
                    pass
            dist.barrier()
        finally:
            ended.append(world.rank())

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate(fn, 2, schedule="random", seed=1)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert 0 in ended
    assert simulate(world.rank, 2) == [0, 1]


def test_rank_that_never_comes_is_in_the_deadlock_report():
    def fn():
        start_torch_distributed()
        if world.rank() != 1:
            dist.all_reduce(torch.ones(4))

    with pytest.raises(DeadlockError) as caught:
        simulate(fn, 3)
    text = str(caught.value)
    assert "all_reduce(sum, float32[4])" in text
    assert "rank 1 (ended) has not called it" in text


def test_query_loop_that_can_never_end_is_a_deadlock():
    def fn():
        start_torch_distributed()
        work = dist.all_reduce(torch.ones(1), async_op=True) if world.rank() == 0 else None
        while work is not None and not work.is_completed():
            pass

    with pytest.raises(DeadlockError, match="all_reduce"):
        simulate(fn, 2)


def test_nested_simulation_is_refused():
    def fn():
        simulate(world.rank, 1)

    with pytest.raises(NestedSimulationError, match="inside a simulated rank"):
        simulate(fn, 2)


def test_from_a_thread_and_from_two_threads_at_once():
    results = {}

    def run(key):
        def fn():
            start_torch_distributed()
            dist.barrier()
            return key, dist.get_rank()

        results[key] = simulate(fn, 3)

    threads = [threading.Thread(target=run, args=(key,)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {key: [(key, rank) for rank in range(3)] for key in "ab"}


def generator_function():
    yield world.rank()


async def coroutine_function():
    return world.rank()


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"world_size": 0}, "world_size=0"),
        ({"world_size": 2.0}, "world_size=2.0"),
        ({"world_size": 128}, "127"),
        ({"world_size": 3, "num_nodes": 2}, "divides world_size=3"),
        ({"world_size": 1, "check": "everything"}, "use one of"),
        ({"world_size": 1, "gpu": "z80"}, "h100"),
        ({"world_size": 1, "heap_size": 0}, "heap_size=0"),
        ({"world_size": 1, "fn": 3}, "not callable"),
        ({"world_size": 1, "fn": generator_function}, "whose body a call does not run"),
        ({"world_size": 1, "fn": coroutine_function}, "whose body a call does not run"),
    ],
)
def test_bad_arguments(bad, text):
    with pytest.raises(InvalidArgumentError, match=text):
        simulate(**{"fn": world.rank, **bad})


def test_heap_size_from_the_environment(monkeypatch):
    monkeypatch.setenv("TRITON_DIST_HEAP_SIZE", "lots")
    with pytest.raises(InvalidArgumentError, match="TRITON_DIST_HEAP_SIZE='lots'"):
        simulate(world.rank, 1)


@pytest.mark.parametrize("check", [None, ""])
def test_no_checks(check):
    assert simulate(world.rank, 1, check=check) == [0]


def test_backward_runs_in_the_ranks_thread():
    def fn():
        start_torch_distributed()
        weight = torch.full((2, 2), 2.0, requires_grad=True)
        (weight * (world.rank() + 1)).sum().backward()
        dist.all_reduce(weight.grad)
        return weight.grad.tolist()

    assert simulate(fn, 2) == [[[3.0, 3.0], [3.0, 3.0]]] * 2


def test_is_public():
    assert triton_dist.simulate is simulate
