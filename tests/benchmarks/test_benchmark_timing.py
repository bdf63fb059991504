"""What is timed, in which order, and what becomes of methods that are wrong or fail; on a machine whose clock the methods move."""

import itertools

import pytest
import torch
from harness.limits import Watchdog
from harness.machine import Captured
from harness.timing import Method, Options, measure

OPTIONS = Options(rounds=9, span_us=100)


class ScriptedMachine:
    """Rank 0 of two. Calls move the clock; what rank 1 answers to a gathering is ``other(value)``."""

    rank, world_size, dry, device = 0, 2, True, torch.device("cpu")

    def __init__(self, other=lambda value: value):
        self.now, self.log, self._other = 0.0, [], other

    def gather(self, value):
        return [value, self._other(value)]

    def align(self, ahead):
        self.log.append("ahead" if ahead else "barrier")

    def mark(self):
        return self.now

    def elapsed_us(self, begin, end):
        return end - begin

    def synchronize(self):
        pass

    def capture(self, call, inner):
        captured = Captured(None, None)

        def replay():
            for turn in range(inner):
                captured.result = call(turn)

        captured.replay = replay
        replay()
        return captured


def method(machine, name, duration, kind="peer", value=1.0, writes=True, tolerance=0.01):
    """A method that takes ``duration`` us and writes ``value`` where 1 is right."""
    out = torch.zeros(4)

    def call(turn):
        machine.log.append(name)
        machine.now += duration
        return out.fill_(value) if writes else out

    return Method(name, kind, call, lambda result, turn: float((result - 1).abs().max()), tolerance, (out,))


def run(machine, methods, mode="eager", options=OPTIONS):
    return measure(machine, methods, mode, options, Watchdog(60, 0))


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_times_and_calls_in_a_span(mode):
    machine = ScriptedMachine()
    short, long = run(machine, [method(machine, "short", 8), method(machine, "long", 250)], mode)
    assert (short.median_us, short.low_us, short.high_us, short.inner) == (8, 8, 8, 13)
    assert (long.median_us, long.inner) == (250, 13), "as many calls as of the shorter one: both share what a span costs besides"
    assert len(short.samples_us) == 9 and short.status == long.status == "measured" and short.error == 0
    assert (short.host_us is None) == (mode == "graph")


def test_every_round_runs_every_method_behind_a_barrier_in_another_order():
    machine = ScriptedMachine()
    names = ["a", "b", "c"]
    run(machine, [method(machine, name, 200) for name in names], "graph")
    # The last 27 barriers are those of the rounds; what follows each is one method.
    barriers = [index for index, entry in enumerate(machine.log) if entry == "ahead"][-27:]
    spans = [machine.log[first + 1 : last] for first, last in itertools.pairwise(barriers)]
    spans.append(machine.log[barriers[-1] + 1 : barriers[-1] + 2])
    assert all(len(span) == 1 for span in spans)
    orders = ["".join(span[0] for span in spans[first : first + 3]) for first in range(0, 27, 3)]
    assert all(sorted(order) == names for order in orders) and len(set(orders)) > 2


def test_the_slowest_rank_counts():
    """Rank 1 takes twice as long in all rounds."""

    def other(value):
        lists = isinstance(value, list) and value and isinstance(value[0], list)
        return [[2 * time for time in times] for times in value] if lists else value

    machine = ScriptedMachine(other)
    (result,) = run(machine, [method(machine, "m", 200)])
    assert result.median_us == 400


def test_inputs_take_turns_in_every_span():
    machine = ScriptedMachine()
    (result,) = run(machine, [method(machine, "m", 200)], options=Options(rounds=9, span_us=100, turns=4))
    assert result.inner == 4


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("broken", [{"value": 1.5}, {"writes": False}, {"value": float("nan")}])
def test_a_wrong_result_is_marked(mode, broken):
    machine = ScriptedMachine()
    right, wrong = run(machine, [method(machine, "right", 50), method(machine, "wrong", 5, **broken)], mode)
    assert right.counts and wrong.status == "wrong" and not wrong.counts
    assert "relative error 5" in wrong.why or "never written" in wrong.why


def test_a_result_that_goes_wrong_during_the_rounds():
    """Right at first, as an operator is whose flags are only right for some calls."""
    machine = ScriptedMachine()
    calls = []
    good = method(machine, "m", 200)

    def call(turn):
        calls.append(turn)
        return good.call(turn) if len(calls) < 10 else good.call(turn).fill_(3)

    (result,) = run(machine, [Method("m", "ours", call, good.error, 0.01, good.outputs)])
    assert result.status == "wrong" and result.error == 2


def test_wrong_on_another_rank_only():
    def other(value):
        return ("", 0.7) if isinstance(value, tuple) and isinstance(value[1], float) else value

    machine = ScriptedMachine(other)
    (result,) = run(machine, [method(machine, "m", 200)])
    assert result.status == "wrong" and result.error == 0.7


def test_a_method_that_raises_is_reported_and_the_others_go_on():
    machine = ScriptedMachine()

    def call(turn):
        raise RuntimeError("no such engine\nmore")

    broken, other = run(machine, [Method("m", "peer", call, lambda *_: 0.0, 0.1), method(machine, "other", 200)])
    assert (broken.status, broken.why, broken.samples_us) == ("failed", "rank 0: RuntimeError: no such engine", [])
    assert other.counts


def test_failed_on_another_rank_only():
    def other(value):
        return ("rank 1: OutOfMemoryError: full", None) if isinstance(value, tuple) else value

    machine = ScriptedMachine(other)
    (result,) = run(machine, [method(machine, "m", 200)])
    assert (result.status, result.why) == ("failed", "rank 1: OutOfMemoryError: full")


def test_what_can_not_be_captured_is_said():
    machine = ScriptedMachine()

    def capture(call, inner):
        raise RuntimeError("operation not permitted when stream is capturing")

    machine.capture = capture
    (result,) = run(machine, [method(machine, "m", 200)], "graph")
    assert result.status == "not captured" and "not permitted" in result.why and not result.counts
    assert result.error == 0
