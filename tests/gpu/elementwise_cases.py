"""Elementwise programs over every dtype: arithmetic, comparisons, casts, math functions."""

from __future__ import annotations

from tests.gpu.programs import Program, elementwise

FLOATS = ("fp16", "bf16", "fp32", "fp64")
INTEGERS = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))
FP8 = ("fp8e5", "fp8e4nv")
TRITON_NAMES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e5": "float8e5", "fp8e4nv": "float8e4nv"}


def triton_type(name: str) -> str:
    """How a kernel writes a type."""
    return f"tl.{TRITON_NAMES.get(name, name)}"


def _cast(target: str, options: str = "") -> tuple[str, str]:
    return f"a.to({triton_type(target)}{options})", target


def _float_programs() -> list[Program]:
    programs = []
    for name in FLOATS:
        one = [("-a", name), ("tl.abs(a)", name), ("a == a", "int1"), ("a.to(tl.int1)", "int1")]
        one += [_cast(other) for other in (*FLOATS, *INTEGERS) if other != name]
        if name != "fp64":
            one += [_cast(other) for other in FP8]
        if name == "fp32":
            one += [_cast(other, ', fp_downcast_rounding="rtz"') for other in ("fp16", "bf16")]
        programs += elementwise(f"{name}.unary", (name,), one)
        if name in ("fp32", "fp64"):
            functions = ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "sigmoid"]
            math = [(f"tl.{function}(a)", name) for function in functions] + ([("tl.sqrt_rn(a)", name)] if name == "fp32" else [])
            programs += elementwise(f"{name}.math", (name,), math)
        two = [(f"a {operator} b", name) for operator in "+-*"] + [
            (f"a {operator} b", "int1") for operator in ("==", "!=", "<", "<=", ">", ">=")
        ]
        for function in ("minimum", "maximum"):
            two += [(f"tl.{function}(a, b)", name), (f"tl.{function}(a, b, propagate_nan=tl.PropagateNan.ALL)", name)]
        two += [("tl.where(a < b, a, b)", name)]
        programs += elementwise(f"{name}.binary", (name, name), two)
        quotient = "fp64" if name == "fp64" else "fp32"
        divide = [("a / b", quotient), ("a % b", name)]
        programs += elementwise(f"{name}.divide", (name, name), divide + ([("tl.div_rn(a, b)", name)] if name == "fp32" else []))
        three = [("a * b + c", name), ("a * b - c", name), ("tl.fma(a, b, c)", name), ("tl.clamp(a, b, c)", name)]
        three += [("tl.clamp(a, b, c, propagate_nan=tl.PropagateNan.ALL)", name)]
        programs += elementwise(f"{name}.ternary", (name, name, name), three)
        programs += elementwise(f"{name}.sums", (name, name, name), [("a + b + c", name), ("(a + b) * c", name), ("-a * b - c", name)])
    return programs


def _fp8_programs() -> list[Program]:
    programs = []
    for name in FP8:
        one = [_cast(other) for other in ("fp16", "bf16", "fp32")] + [("a.to(tl.float32) * 2.0", "fp32")]
        programs += elementwise(f"{name}.unary", (name,), one)
    return programs


def _integer_programs() -> list[Program]:
    programs = []
    for name in INTEGERS:
        bits = int(name.removeprefix("u").removeprefix("int"))
        one = [("-a", name), ("~a", name), ("tl.abs(a)", name), ("a.to(tl.int1)", "int1")]
        one += [_cast(other) for other in (*FLOATS, *INTEGERS) if other != name]
        programs += elementwise(f"{name}.unary", (name,), one)
        two = [(f"a {operator} b", name) for operator in ("+", "-", "*", "&", "|", "^")]
        two += [(f"a {operator} b", "int1") for operator in ("==", "!=", "<", "<=", ">", ">=")]
        two += [("tl.minimum(a, b)", name), ("tl.maximum(a, b)", name)] + ([("tl.umulhi(a, b)", name)] if bits >= 32 else [])
        programs += elementwise(f"{name}.binary", (name, name), two)
        programs += elementwise(f"{name}.divide", (name, name), [("a // b", name), ("a % b", name)])
        programs += elementwise(f"{name}.shift", (name, name), [("a << b", name), ("a >> b", name)])
    one = [_cast(other) for other in ("int8", "int32", "int64", "uint8", "uint64", *FLOATS)] + [("~a", "int1"), ("-a.to(tl.int8)", "int8")]
    programs += elementwise("int1.unary", ("int1",), one)
    two = [(f"a {operator} b", "int1") for operator in ("&", "|", "^", "==", "!=", "<", "<=", ">", ">=")]
    two += [("a + b", "int1"), ("a * b", "int1"), ("a - b", "int1"), ("tl.minimum(a, b)", "int1"), ("tl.maximum(a, b)", "int1")]
    return programs + elementwise("int1.binary", ("int1", "int1"), two)


def elementwise_programs() -> list[Program]:
    """All elementwise programs."""
    random = [("tl.randint(12345, a)", "int32"), ("tl.rand(12345, a)", "fp32"), ("tl.randn(12345, a)", "fp32")]
    return _float_programs() + _fp8_programs() + _integer_programs() + elementwise("random", ("int32",), random)
