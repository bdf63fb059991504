"""Ops that Triton's passes can write but no short kernel brings about: their text in MLIR's generic form, run by themselves."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

from triton_dist.sim.codegen import generate
from triton_dist.sim.ir import IRSyntaxError, parse_module


def run(operation: str, result: str, *arguments: tuple[str, object]) -> object:
    """Value of the one result, ``%r``, of an op whose operands are ``%a0``, ``%a1`` and so on; arguments are (type, value)."""
    parameters = ", ".join(f"%a{number}: {kind} loc(unknown)" for number, (kind, _) in enumerate(arguments))
    text = f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = () -> (), sym_name = "kernel", sym_visibility = "public"}}> ({{
  ^bb0{f"({parameters})" if parameters else ""}:
    %r = {operation} loc(unknown)
    "tt.return"(%r) : ({result}) -> () loc(unknown)
  }}) : () -> () loc(unknown)
}}) : () -> () loc(unknown)
"""
    function, *_ = generate(parse_module(text), "kernel", 128)
    program = function(None, *(value for _, value in arguments))
    with pytest.raises(StopIteration) as end:
        next(program)
    return end.value.value


ORDERED = {1: operator.eq, 2: operator.gt, 3: operator.ge, 4: operator.lt, 5: operator.le, 6: operator.ne, 7: lambda a, b: True}
FLOATS = [0.0, -0.0, 1.0, 2.0, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("predicate", range(16))
def test_every_comparison_of_floats(predicate):
    """0 is never, 15 always; 1 to 7 hold for ordered operands only, 8 to 14 are the opposites of ordered ones, so hold for a NaN."""
    a, b = (side.ravel() for side in np.meshgrid(np.array(FLOATS, np.float32), np.array(FLOATS, np.float32)))

    def expected(x: float, y: float) -> bool:
        unordered = math.isnan(x) or math.isnan(y)
        if predicate in (0, 15):
            return predicate == 15
        if predicate <= 7:
            return not unordered and ORDERED[predicate](x, y)
        return unordered or (predicate < 14 and ORDERED[predicate - 7](x, y))

    wanted = [expected(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    properties = f"<{{predicate = {predicate} : i64}}>"
    kind = f"tensor<{a.size}xf32>"
    tile = run(f'"arith.cmpf"(%a0, %a1) {properties} : ({kind}, {kind}) -> tensor<{a.size}xi1>', "i1", (kind, a), (kind, b))
    assert np.broadcast_to(tile, a.shape).tolist() == wanted
    scalars = [
        run(f'"arith.cmpf"(%a0, %a1) {properties} : (f32, f32) -> i1', "i1", ("f32", x), ("f32", y)) for x, y in zip(a, b, strict=True)
    ]
    assert [bool(value) for value in scalars] == wanted


CONSTANTS = [
    ("dense<[1, -2, 3]> : tensor<3xi32>", "tensor<3xi32>", np.array([1, -2, 3], np.int32)),
    ("dense<[[1.5, 2.0], [0x7F800000, -1.0]]> : tensor<2x2xf32>", "tensor<2x2xf32>", np.array([[1.5, 2], [math.inf, -1]], np.float32)),
    ('dense<"0x0100000002000000"> : tensor<2xi32>', "tensor<2xi32>", np.array([1, 2], np.int32)),
    ("dense<[true, false]> : tensor<2xi1>", "tensor<2xi1>", np.array([True, False])),
    ("dense<0xFC00> : tensor<4xf16>", "tensor<4xf16>", np.float16(-math.inf)),
    ("0x7FF8000000000000 : f64", "f64", np.float64(math.nan)),
    ("true", "i1", True),
    ("-7 : i64", "i64", -7),
    ("3.000000e+00 : bf16", "bf16", 3.0),
]


@pytest.mark.parametrize(("text", "kind", "expected"), CONSTANTS, ids=lambda item: str(item)[:20])
def test_constants(text, kind, expected):
    value = run(f'"arith.constant"() <{{value = {text}}}> : () -> {kind}', kind)
    assert np.array_equal(np.asarray(value, np.float64), np.asarray(expected, np.float64), equal_nan=True)


@pytest.mark.parametrize("kind", ["i32", "i1", "f32", "tensor<4xi32>", "tensor<4xbf16>"])
def test_poison_is_zero(kind):
    assert not np.any(run(f'"ub.poison"() <{{value = #ub.poison}}> : () -> {kind}', kind))


def test_index_casts():
    assert run('"arith.index_cast"(%a0) : (i64) -> i32', "i32", ("i64", 2**31 + 5)) == 5 - 2**31
    assert run('"arith.index_cast"(%a0) : (i32) -> index', "index", ("i32", -3)) == -3


def test_sign_extension_of_booleans():
    """A signed true is -1."""
    assert run('"arith.extsi"(%a0) : (i1) -> i32', "i32", ("i1", True)) == -1
    tile = run('"arith.extsi"(%a0) : (tensor<2xi1>) -> tensor<2xi8>', "i8", ("tensor<2xi1>", np.array([True, False])))
    assert tile.tolist() == [-1, 0] and tile.dtype == np.int8


@pytest.mark.parametrize(("source", "value", "expected"), [("i32", 6, False), ("i32", -1, True), ("i64", 2**40, False)])
def test_truncation_to_a_boolean_keeps_the_lowest_bit(source, value, expected):
    assert run(f'"arith.trunci"(%a0) : ({source}) -> i1', "i1", (source, value)) is expected
    dtype = np.int32 if source == "i32" else np.int64
    tile = run(f'"arith.trunci"(%a0) : (tensor<1x{source}>) -> tensor<1xi1>', "i1", (f"tensor<1x{source}>", np.array([value], dtype)))
    assert tile.tolist() == [expected]


@pytest.mark.parametrize(("predicate", "expected"), [(2, False), (4, True), (6, True), (8, False)])
def test_order_of_booleans_depends_on_the_sign(predicate, expected):
    """False against true: below it without a sign, above it with one (predicates 2 to 5 are signed, 6 to 9 not)."""
    properties = f"<{{predicate = {predicate} : i64}}>"
    assert bool(run(f'"arith.cmpi"(%a0, %a1) {properties} : (i1, i1) -> i1', "i1", ("i1", False), ("i1", True))) is expected
    kind = "tensor<1xi1>"
    operands = (kind, np.array([False])), (kind, np.array([True]))
    assert run(f'"arith.cmpi"(%a0, %a1) {properties} : ({kind}, {kind}) -> {kind}', "i1", *operands).tolist() == [expected]


@pytest.mark.parametrize("name", ["maxsi", "minsi", "maxui", "minui"])
def test_extrema_of_booleans(name):
    """A signed true is -1, the smaller one."""
    expected = (name == "maxui") or (name == "minsi")
    assert bool(run(f'"arith.{name}"(%a0, %a1) : (i1, i1) -> i1', "i1", ("i1", False), ("i1", True))) is expected


@pytest.mark.parametrize("text", ["", '"builtin.module"() ({', "module {}", '"builtin.module"() : () -> 5'])
def test_text_that_is_not_in_generic_form_is_a_syntax_error(text):
    """A later MLIR that prints another form has to be noticed, not misread."""
    with pytest.raises(IRSyntaxError):
        parse_module(text)
