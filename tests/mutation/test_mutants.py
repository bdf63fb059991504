"""The mutator: what it finds in a text, what it makes of it, what a table says of it; and a sample of mutants that the checks name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.targets import NOTHING_TO_MUTATE, ROOT, TARGETS
from triton_dist.errors import InvalidArgumentError
from triton_dist.tools.mutate.equivalents import TABLE, reasons_for
from triton_dist.tools.mutate.forked import run_forked
from triton_dist.tools.mutate.operators import mutants_of, mutated
from triton_dist.tools.mutate.run import Outcome

KERNEL = """
import triton.language as tl
import triton_dist.language as dl

@triton.jit
def kernel(flag, data, out, finished):
    token = dl.wait(
        flag, 1, "sys", "acquire",
        waitValue=1,
    )
    ready = dl.consume_token(data, token)
    tl.store(out, tl.load(ready))
    while ld(flag, "gpu", "acquire") != 3:
        pass
    if tl.atomic_add(finished, 1) == 3:
        tl.store(finished, 0)
    tl.debug_barrier(); dl.notify(flag, 1, comm_scope="intra_node")


def host(stream, event, flags):
    stream.wait_event(event)
    flags.zero_()
    signal_batch([Wait(flags[0], 1), Write(flags[1], 0)])
    signal_batch([Write(flag, 1) for flag in flags])
    value = len(flags)
    return value
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    return path


def changed_line(path: Path, operator: str, expression: str) -> str:
    """What stands where the only such mutant was."""
    (mutant,) = [m for m in mutants_of(path) if m.operator == operator and m.expression.startswith(expression)]
    text = mutated(mutant).decode()
    compile(text, "mutant", "exec")
    assert len(text.splitlines()) == len(KERNEL.splitlines()), "lines keep their numbers"
    return text.splitlines()[mutant.line - 1].strip()


@pytest.mark.parametrize(
    ("operator", "expression", "line"),
    [
        ("drop", "dl.wait", "token = ((tl.program_id(0) * 0)"),
        ("drop-token", "dl.consume_token", "ready = data"),
        ("drop", "ld(", "pass"),
        ("weaken-scope", "ld(", "while ld(flag, 'cta', \"acquire\") != 3:"),
        ("weaken-semantic", "ld(", "while ld(flag, \"gpu\", 'relaxed') != 3:"),
        ("weaken-scope", "tl.atomic_add", "if tl.atomic_add(finished, 1, scope='cta') == 3:"),
        ("weaken-semantic", "tl.atomic_add", "if tl.atomic_add(finished, 1, sem='relaxed') == 3:"),
        ("drop-reset", "tl.store(finished", "pass"),
        ("drop", "tl.debug_barrier", 'pass; dl.notify(flag, 1, comm_scope="intra_node")'),
        ("weaken-scope", "dl.notify", "tl.debug_barrier(); dl.notify(flag, 1, comm_scope='gpu')"),
        ("drop", "stream.wait_event", "pass"),
        ("drop-reset", "flags.zero_", "pass"),
        ("drop-step", "Wait", "signal_batch([*(), Write(flags[1], 0)])"),
        ("drop-step", "Write(flag,", "signal_batch([])"),
    ],
)
def test_what_a_mutant_looks_like(kernel, operator, expression, line):
    assert changed_line(kernel, operator, expression) == line


def test_only_what_orders_is_mutated(kernel):
    calls = {mutant.expression for mutant in mutants_of(kernel)}
    assert not any(call.startswith(("tl.store(out", "tl.load", "len")) for call in calls)
    assert {mutant.function for mutant in mutants_of(kernel)} == {"kernel", "host"}


def table(directory: Path, text: str) -> None:
    (directory / TABLE).write_text(text)


ENTRY = """
[[equivalent]]
file = "kernel.py"
function = "kernel"
expression = "tl.debug_barrier()"
operator = "drop"
reason = "nothing stands before it"
"""


def test_a_table_knows_its_mutants_by_their_text(kernel):
    table(kernel.parent, ENTRY + '[[excluded]]\nfile = "kernel.py"\nfunction = "host"\nreason = "of no interest"\n')
    kernel.write_text("# one line more\n" + KERNEL)
    reasons = reasons_for(mutants_of(kernel))
    assert {(mutant.expression, reason.text) for mutant, reason in reasons.items() if reason.kind == "equivalent"} == {
        ("tl.debug_barrier()", "nothing stands before it")
    }
    assert {mutant.function for mutant, reason in reasons.items() if reason.kind == "excluded"} == {"host"}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (ENTRY.replace("debug_barrier", "barrier"), "no mutant has"),
        (ENTRY.replace('"drop"', '"weaken-scope"'), "no mutant has"),
        (ENTRY + "occurrence = 1\n", "no mutant has"),
        (ENTRY.replace("reason", "why"), "it needs"),
        (ENTRY.replace('"nothing stands before it"', '""'), "all text"),
        (ENTRY.replace("equivalent", "equal"), "unknown tables"),
        ("[[", "Invalid|Expected|invalid"),
    ],
)
def test_a_table_that_is_wrong_is_named(kernel, bad, message):
    table(kernel.parent, bad)
    with pytest.raises(InvalidArgumentError, match=message):
        reasons_for(mutants_of(kernel))


def test_the_tables_of_the_project_match():
    mutants = [mutant for file in TARGETS for mutant in mutants_of(ROOT / file)]
    reasons = reasons_for(mutants)
    assert len(mutants) > 70 and 0 < len(reasons) < len(mutants) / 3


def test_every_op_kernel_and_example_is_mutated():
    folders = ("src/triton_dist/ops", "src/triton_dist/kernels", "src/triton_dist/mega_triton_kernel", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = {path.relative_to(ROOT).as_posix() for path in files if path.name != "__init__.py"}
    assert names == {*TARGETS, *NOTHING_TO_MUTATE}
    assert [name for name in NOTHING_TO_MUTATE if mutants_of(ROOT / name)] == []
    assert all(mutants_of(ROOT / name) for name in TARGETS)


def test_processes_that_die_or_do_not_end_are_told_apart():
    def hang() -> dict:
        while True:
            pass

    answers = dict(run_forked([("right", lambda: {"value": 3}), ("dead", lambda: os._exit(3))], workers=2, timeout=60.0))
    answers |= dict(run_forked([("late", hang)], timeout=1.0))
    assert answers["right"].value == {"value": 3}
    assert (answers["dead"].value, answers["dead"].late) == (None, False)
    assert (answers["late"].value, answers["late"].late) == (None, True)


def test_a_task_that_raises_is_an_error():
    with pytest.raises(InvalidArgumentError, match="ZeroDivisionError"):
        list(run_forked([("bad", lambda: {"value": 1 // 0})]))


@pytest.mark.parametrize(("result", "named"), [("DataRaceError", True), ("refused", True), ("wrong result", False), ("survived", False)])
def test_a_wrong_result_alone_is_not_named(result, named):
    assert Outcome(result, 0, "random", "", 1).named == named


def mutate(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "triton_dist.tools.mutate", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("file", "only", "count"),
    [
        ("src/triton_dist/ops/collectives/staging.py", "weaken-scope", 2),
        ("src/triton_dist/ops/collectives/barrier.py", "drop dl.", 2),
        ("src/triton_dist/kernels/nvidia/common_ops.py", "__syncthreads", 2),
        ("examples/03_simt.py", "exchange_counts_kernel: drop ", 3),
    ],
)
def test_a_sample_of_mutants_is_named(file, only, count):
    done = mutate(file, "--program", f"tests.mutation.programs:{TARGETS[file]}", "--seeds", "1", "--schedules", "random", "--only", only)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == count
    assert all(line.split()[0] in ("DataRaceError", "DeadlockError") for line in done.stdout.splitlines()), done.stdout


def test_a_mutant_that_nothing_names_is_told():
    """Without the race check only the result can be wrong, and in one run it is not."""
    file = "examples/01_producer_consumer.py"
    done = mutate(
        file,
        "--program",
        "tests.mutation.programs:TUTORIAL",
        "--seeds",
        "1",
        "--check",
        "",
        "--schedules",
        "random",
        "--only",
        "weaken-semantic",
    )
    assert done.returncode == 1 and done.stdout.startswith("survived"), done.stdout + done.stderr


def test_a_program_that_does_not_use_the_file_is_named(tmp_path, kernel):
    done = mutate(str(kernel), "--program", "tests.mutation.programs:SIMT", "--seeds", "1", "--schedules", "round_robin", "--only", "token")
    assert done.returncode != 0 and "does not import" in done.stderr


def test_mutants_are_listed():
    done = mutate("examples/03_simt.py", "--list")
    assert done.returncode == 0 and "[equivalent: " in done.stdout and "exchange_counts_kernel: drop __syncthreads()" in done.stdout
