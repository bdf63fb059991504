"""A whole random kernel: statements of every kind, loops and branches, and a store of what was computed."""

from __future__ import annotations

import random

import numpy as np

from tests.fuzz.builder import Builder, Environment, Variable
from tests.fuzz.memory_statements import add_atomic, add_descriptor_load, add_load, add_scalar, add_store
from tests.fuzz.reference import Tile
from tests.fuzz.tile_statements import (
    add_binary,
    add_bitcast,
    add_call,
    add_convert,
    add_logic,
    add_math,
    add_shape,
    add_source,
    add_unary,
    add_where,
)
from tests.fuzz.whole_tile_statements import add_dot, add_rearrangement, add_reduction, add_scan

PLAIN = (
    (add_load, 6), (add_scalar, 3), (add_source, 3), (add_binary, 28), (add_unary, 8), (add_math, 8), (add_where, 8), (add_logic, 3),
    (add_convert, 10), (add_bitcast, 3), (add_shape, 10), (add_reduction, 8), (add_scan, 6), (add_rearrangement, 5), (add_dot, 2),
    (add_atomic, 3), (add_call, 2), (add_descriptor_load, 2),
)  # fmt: skip


def _step(build: Builder) -> None:
    functions, weights = zip(*PLAIN, strict=True)
    build.random.choices(functions, weights)[0](build)


def _assign(build: Builder, target: Variable, value: Variable) -> None:
    """``target = value``, where both have one type and shape."""
    build.line(f"{target.name} = {value.name}")

    def run(environment: Environment) -> None:
        environment[target.name] = environment[value.name]

    build.statements.append(run)


def _carried(build: Builder) -> Variable | None:
    """A variable that a block may change: exact stays exact, for a block's arithmetic uses exact operands only then."""
    return build.pick(tile=False, test=lambda variable: variable.exact)


def _body(build: Builder, target: Variable, steps: int) -> bool:
    """A few statements, then a new value for ``target`` that is as exact; False if none came out."""
    for _ in range(steps):
        _step(build)
    for _ in range(6):
        made = add_binary(build, target)
        if made is not None and made.exact and made.shape == target.shape and made.dtype == target.dtype:
            _assign(build, target, made)
            return True
    build.line("pass")
    return False


def _run(statements: list, environment: Environment) -> None:
    for statement in statements:
        statement(environment)


def _add_for(build: Builder) -> None:
    target = _carried(build)
    if target is None:
        return
    start, count, step = build.random.choice((0, 0, 2)), build.random.randint(0, 4), build.random.choice((1, 1, 2))
    runtime = build.chance(0.5)
    bound = start + count * step - build.random.choice((0, step - 1)) if count else start
    limit = build.buffer("int32", 1, "constant", bound) if runtime else None
    index = build.fresh("i")
    stop = build.fresh("stop")
    if limit:
        build.line(f"{stop} = tl.load({limit.name})")
    with build.block(f"for {index} in range({start}, {stop if limit else bound}, {step}):") as statements:
        counter = build.add(f"{index} + 0 * pid", "int32", (), lambda e: Tile("int32", np.array(e[index], object)))
        assert counter.exact
        _body(build, target, build.random.randint(0, 3))

    def loop(environment: Environment) -> None:
        for value in range(start, bound, step):
            environment[index] = value
            _run(statements, environment)

    build.statements.append(loop)


def _add_while(build: Builder) -> None:
    target = _carried(build)
    if target is None:
        return
    index, rounds = build.fresh("n"), build.random.randint(0, 3)
    build.line(f"{index} = pid * 0")
    with build.block(f"while {index} < {rounds}:") as statements:
        _body(build, target, build.random.randint(0, 2))
        build.line(f"{index} += 1")

    def loop(environment: Environment) -> None:
        for _ in range(rounds):
            _run(statements, environment)

    build.statements.append(loop)


def _add_if(build: Builder) -> None:
    target = _carried(build)
    condition = build.pick(dtypes=("int32", "int64", "uint8", "int16"), tile=False, exact=True, test=lambda variable: not variable.shape)
    if target is None or condition is None or condition == target:
        return
    bound = build.random.choice((0, 1, 5))
    with build.block(f"if {condition.name} > {bound}:") as taken:
        _body(build, target, build.random.randint(0, 2))
    other: list = []
    if build.chance(0.6):
        with build.block("else:") as other:
            _body(build, target, build.random.randint(0, 2))

    def branch(environment: Environment) -> None:
        _run(taken if int(environment[condition.name].data) > bound else other, environment)

    build.statements.append(branch)


def build_kernel(rng: random.Random) -> Builder:
    """A kernel of 10 to 40 statements. The result's ``source`` and ``statements`` say the same."""
    build = Builder(rng, programs=rng.choice((1, 1, 2, 3)))
    build.line("pid = tl.program_id(0)")
    pid = Variable("pid_tile", "int32", ())
    build.line("pid_tile = pid + 0")
    build.variables.append(pid)
    build.statements.append(lambda environment: environment.__setitem__("pid_tile", Tile("int32", np.array(environment["pid"], object))))
    add_load(build)
    for _ in range(rng.randint(10, 40)):
        choice = rng.random()
        if choice < 0.08:
            _add_for(build)
        elif choice < 0.11:
            _add_while(build)
        elif choice < 0.16:
            _add_if(build)
        else:
            _step(build)
    kept = build.variables[1:]
    chosen = kept if len(kept) <= 24 else [*kept[-8:], *rng.sample(kept[:-8], 16)]
    for variable in chosen:
        add_store(build, variable)
    return build
