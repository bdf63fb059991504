"""Handlers of the ``arith`` and ``math`` dialects and of the elementwise ops of ``tt``."""

from __future__ import annotations

import re

import numpy as np

from .codegen import FunctionEmitter, handles
from .ir import Operation
from .types import Type

_OPERATORS = {
    "arith.addi": "+",
    "arith.subi": "-",
    "arith.muli": "*",
    "arith.andi": "&",
    "arith.ori": "|",
    "arith.xori": "^",
    "arith.addf": "+",
    "arith.subf": "-",
    "arith.mulf": "*",
    "arith.divf": "/",
    "tt.precise_divf": "/",
    "tt.approx_divf": "/",
}
_ON_BOOLEANS = {"arith.addi": "^", "arith.subi": "^", "arith.muli": "&"}
_WRAPS = ("arith.addi", "arith.subi", "arith.muli")


def wrapped(expression: str, bits: int) -> str:
    """Source that reduces a Python int to a signed integer of ``bits`` bits."""
    half = 1 << (bits - 1)
    return f"(({expression}) + {half} & {(1 << bits) - 1}) - {half}"


@handles(*_OPERATORS)
def _binary(emitter: FunctionEmitter, operation: Operation) -> None:
    name = operation.name
    kind = operation.result_types[0]
    symbol = _ON_BOOLEANS.get(name, _OPERATORS[name]) if kind.element == "i1" else _OPERATORS[name]
    if emitter.is_tensor(operation) or kind.is_float:
        a, b = emitter.arrays(operation)
        emitter.assign(operation, f"{a} {symbol} {b}")
        return
    a, b = emitter.values(operation)
    expression = f"{a} {symbol} {b}"
    emitter.assign(operation, wrapped(expression, kind.bits) if name in _WRAPS and kind.element != "i1" else expression)


@handles("arith.divsi", "arith.remsi", "arith.divui", "arith.remui")
def _divide(emitter: FunctionEmitter, operation: Operation) -> None:
    stem = operation.name[6:]
    kind = operation.result_types[0]
    function = {"divsi": "divide_signed", "remsi": "remainder_signed", "divui": "divide_unsigned", "remui": "remainder_unsigned"}[stem]
    if emitter.is_tensor(operation):
        a, b = emitter.arrays(operation)
        emitter.assign(operation, f"arith.{function}({a}, {b})")
        return
    a, b = emitter.values(operation)
    if stem[3] == "u":
        emitter.assign(operation, f"arith.{function}_int({a}, {b}, {kind.bits})")
    else:
        emitter.assign(operation, wrapped(f"arith.{function}_int({a}, {b})", kind.bits))


@handles("arith.shli", "arith.shrsi", "arith.shrui")
def _shift(emitter: FunctionEmitter, operation: Operation) -> None:
    stem = operation.name[6:]
    if emitter.is_tensor(operation):
        function = {"shli": "shift_left", "shrsi": "shift_right_signed", "shrui": "shift_right_unsigned"}[stem]
        a, b = emitter.arrays(operation)
        emitter.assign(operation, f"arith.{function}({a}, {b})")
    else:
        a, b = emitter.values(operation)
        emitter.assign(operation, f"arith.shift_int({stem!r}, {a}, {b}, {operation.result_types[0].bits})")


_INTEGER_COMPARE = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")


@handles("arith.cmpi")
def _compare_integers(emitter: FunctionEmitter, operation: Operation) -> None:
    predicate = int(operation.attributes["predicate"])
    kind = operation.operand_types[0]
    symbol = _INTEGER_COMPARE[predicate]
    if emitter.is_tensor(operation):
        a, b = emitter.arrays(operation)
        if kind.element == "i1":
            if 2 <= predicate <= 5:  # a signed true is -1
                a, b = b, a
        elif predicate > 5:
            a, b = f"arith.unsigned({a})", f"arith.unsigned({b})"
        emitter.assign(operation, f"{a} {symbol} {b}")
        return
    a, b = emitter.values(operation)
    if kind.element == "i1":
        a, b = (b, a) if 2 <= predicate <= 5 else (a, b)
    elif predicate > 5:
        mask = (1 << kind.bits) - 1
        a, b = f"({a} & {mask})", f"({b} & {mask})"
    emitter.assign(operation, f"{a} {symbol} {b}")


_FLOAT_COMPARE = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 13: "!="}


@handles("arith.cmpf")
def _compare_floats(emitter: FunctionEmitter, operation: Operation) -> None:
    predicate = int(operation.attributes["predicate"])
    a, b = emitter.values(operation)
    if predicate in _FLOAT_COMPARE:
        expression = f"{a} {_FLOAT_COMPARE[predicate]} {b}"
    elif predicate in (0, 15):
        expression = f"np.bool_({predicate == 15})"
    else:
        expression = f"arith.compare_float({predicate}, {a}, {b})"
    emitter.assign(operation, expression)


@handles("arith.select")
def _select(emitter: FunctionEmitter, operation: Operation) -> None:
    condition, if_true, if_false = emitter.values(operation)
    if emitter.kind(operation.operands[0]).shape is None:
        emitter.assign(operation, f"{if_true} if {condition} else {if_false}")
    else:
        _, if_true, if_false = emitter.arrays(operation)
        emitter.assign(operation, f"np.where({condition}, {if_true}, {if_false})")


_MIN_MAX = {
    "arith.maxnumf": "maximum_number",
    "arith.minnumf": "minimum_number",
    "arith.maximumf": "maximum",
    "arith.minimumf": "minimum",
}


@handles(*_MIN_MAX)
def _float_extremum(emitter: FunctionEmitter, operation: Operation) -> None:
    a, b = emitter.values(operation)
    emitter.assign(operation, f"arith.{_MIN_MAX[operation.name]}({a}, {b})")


@handles("arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui")
def _integer_extremum(emitter: FunctionEmitter, operation: Operation) -> None:
    stem = operation.name[6:9]
    kind = operation.result_types[0]
    is_unsigned = operation.name.endswith("ui")
    if emitter.is_tensor(operation):
        a, b = emitter.arrays(operation)
        if kind.element == "i1":
            either = (stem == "max") == is_unsigned
            emitter.assign(operation, f"{a} {'|' if either else '&'} {b}")
        elif is_unsigned:
            dtype = emitter.module.dtype(kind.dtype)
            emitter.assign(operation, f"np.{stem}imum(arith.unsigned({a}), arith.unsigned({b})).view({dtype})")
        else:
            emitter.assign(operation, f"np.{stem}imum({a}, {b})")
        return
    a, b = emitter.values(operation)
    if kind.element == "i1":
        either = (stem == "max") == is_unsigned
        emitter.assign(operation, f"{a} {'|' if either else '&'} {b}")
    elif is_unsigned:
        emitter.assign(operation, f"{stem}({a}, {b}, key=lambda x: x & {(1 << kind.bits) - 1})")
    else:
        emitter.assign(operation, f"{stem}({a}, {b})")


@handles("tt.clampf")
def _clamp(emitter: FunctionEmitter, operation: Operation) -> None:
    x, lo, hi = emitter.values(operation)
    propagate = bool(operation.attributes.get("propagateNan"))
    emitter.assign(operation, f"arith.clamp({x}, {lo}, {hi}, {propagate})")


@handles("tt.mulhiui")
def _multiply_high(emitter: FunctionEmitter, operation: Operation) -> None:
    if emitter.is_tensor(operation):
        a, b = emitter.arrays(operation)
        emitter.assign(operation, f"arith.multiply_high_unsigned({a}, {b})")
    else:
        a, b = emitter.values(operation)
        emitter.assign(operation, f"arith.multiply_high_unsigned_int({a}, {b}, {operation.result_types[0].bits})")


_UNARY = {
    "arith.negf": "-{0}",
    "math.absf": "np.abs({0})",
    "math.ceil": "np.ceil({0})",
    "math.floor": "np.floor({0})",
    "math.cos": "np.cos({0})",
    "math.sin": "np.sin({0})",
    "math.tan": "np.tan({0})",
    "math.tanh": "np.tanh({0})",
    "math.exp": "np.exp({0})",
    "math.exp2": "np.exp2({0})",
    "math.log": "np.log({0})",
    "math.log2": "np.log2({0})",
    "math.sqrt": "np.sqrt({0})",
    "tt.precise_sqrt": "np.sqrt({0})",
    "math.rsqrt": "1 / np.sqrt({0})",
    "math.erf": "arith.error_function({0})",
}


_READ_SUBNORMALS_AS_ZERO = ("math.ceil", "math.erf", "math.floor", "math.rsqrt", "math.sin", "math.sqrt")
"""The approximate instructions and the fp32 half of libdevice, which Triton links in its mode that flushes. ``math.exp`` doesn't."""


@handles(*_UNARY)
def _unary(emitter: FunctionEmitter, operation: Operation) -> None:
    value = emitter.values(operation)[0]
    single = operation.result_types[0].element == "f32"
    if single and operation.name in _READ_SUBNORMALS_AS_ZERO:
        value = f"arith.flush({value})"
    expression = _UNARY[operation.name].format(value)
    emitter.assign(operation, f"arith.flush({expression})" if single and operation.name == "math.exp2" else expression)


@handles("math.absi")
def _absolute(emitter: FunctionEmitter, operation: Operation) -> None:
    if emitter.is_tensor(operation):
        emitter.assign(operation, f"np.abs({emitter.arrays(operation)[0]})")
    else:
        emitter.assign(operation, wrapped(f"abs({emitter.values(operation)[0]})", operation.result_types[0].bits))


@handles("math.fma")
def _fused_multiply_add(emitter: FunctionEmitter, operation: Operation) -> None:
    a, b, c = emitter.values(operation)
    emitter.assign(operation, f"arith.fused_multiply_add({a}, {b}, {c})")


@handles("arith.remf")
def _float_remainder(emitter: FunctionEmitter, operation: Operation) -> None:
    a, b = emitter.values(operation)
    emitter.assign(operation, f"arith.remainder_float({a}, {b})")


@handles("arith.extsi", "arith.index_cast", "arith.index_castui")
def _extend_signed(emitter: FunctionEmitter, operation: Operation) -> None:
    source, kind = operation.operand_types[0], operation.result_types[0]
    value = emitter.values(operation)[0]
    if emitter.is_tensor(operation):
        converted = f"{value}.astype({emitter.module.dtype(kind.dtype)})"
        emitter.assign(operation, f"-{converted}" if source.element == "i1" else converted)
    elif source.element == "i1":
        emitter.assign(operation, f"-int({value})")
    elif operation.name != "arith.extsi" and kind.bits < source.bits:
        emitter.assign(operation, wrapped(value, kind.bits))
    else:
        emitter.assign(operation, value)


@handles("arith.extui")
def _extend_unsigned(emitter: FunctionEmitter, operation: Operation) -> None:
    source, kind = operation.operand_types[0], operation.result_types[0]
    value = emitter.values(operation)[0]
    if emitter.is_tensor(operation):
        bits = value if source.element == "i1" else f"arith.unsigned({value})"
        emitter.assign(operation, f"{bits}.astype({emitter.module.dtype(kind.dtype)})")
    else:
        emitter.assign(operation, f"int({value}) & {(1 << source.bits) - 1}")


@handles("arith.trunci")
def _truncate(emitter: FunctionEmitter, operation: Operation) -> None:
    kind = operation.result_types[0]
    value = emitter.values(operation)[0]
    if kind.element == "i1":
        emitter.assign(operation, f"({value} & 1).astype(np.bool_)" if emitter.is_tensor(operation) else f"bool({value} & 1)")
    elif emitter.is_tensor(operation):
        emitter.assign(operation, f"{value}.astype({emitter.module.dtype(kind.dtype)})")
    else:
        emitter.assign(operation, wrapped(value, kind.bits))


@handles("arith.sitofp", "arith.uitofp")
def _integer_to_float(emitter: FunctionEmitter, operation: Operation) -> None:
    dtype = emitter.module.dtype(operation.result_types[0].dtype)
    is_unsigned = operation.name == "arith.uitofp"
    emitter.assign(operation, f"arith.int_to_float({emitter.arrays(operation)[0]}, {dtype}, {is_unsigned})")


@handles("arith.fptosi", "arith.fptoui")
def _float_to_integer(emitter: FunctionEmitter, operation: Operation) -> None:
    kind = operation.result_types[0]
    value = emitter.values(operation)[0]
    if kind.element == "i1":
        emitter.assign_scalar(operation, f"np.asarray({value} != 0)[()]")
        return
    dtype = emitter.module.dtype(kind.dtype)
    emitter.assign_scalar(operation, f"arith.float_to_int({value}, {dtype}, {operation.name == 'arith.fptoui'})")


@handles("arith.extf", "arith.truncf", "tt.fp_to_fp")
def _convert_float(emitter: FunctionEmitter, operation: Operation) -> None:
    source, kind = operation.operand_types[0], operation.result_types[0]
    value = emitter.values(operation)[0]
    dtype = emitter.module.dtype(kind.dtype)
    toward_zero = operation.name == "tt.fp_to_fp" and operation.attributes.get("rounding") == 0
    plain = source.bits >= 16 and kind.bits >= 16 and not toward_zero and {source.element, kind.element} != {"f64", "bf16"}
    emitter.assign(operation, f"{value}.astype({dtype})" if plain else f"arith.convert_float({value}, {dtype}, {toward_zero})")


@handles("tt.bitcast", "arith.bitcast")
def _bitcast(emitter: FunctionEmitter, operation: Operation) -> None:
    kind = operation.result_types[0]
    if kind.is_pointer:
        emitter.alias(operation.results[0], emitter.value(operation.operands[0]))
        return
    emitter.assign_scalar(operation, f"{emitter.arrays(operation)[0]}.view({emitter.module.dtype(kind.dtype)})")


@handles("arith.constant")
def _constant(emitter: FunctionEmitter, operation: Operation) -> None:
    kind = operation.result_types[0]
    raw = operation.attributes["value"]
    text = str(raw).rpartition(" : ")[0] if isinstance(raw, str) and " : " in raw else raw
    if kind.shape is None:
        number = _number(text, kind)
        if kind.is_float or emitter.vector:
            emitter.alias(operation.results[0], emitter.module.constant(kind.dtype.type(number)))
        else:
            emitter.assign(operation, repr(number))
        return
    body = str(text)[len("dense<") : -1]
    if body.startswith('"'):
        array = np.frombuffer(bytes.fromhex(body[3:-1]), kind.dtype).reshape(kind.shape)
    elif body.startswith("["):
        items = [_number(item, kind) for item in re.split(r"[\[\],\s]+", body) if item]
        array = np.array(items, kind.dtype).reshape(kind.shape)
    else:
        array = kind.dtype.type(_number(body, kind))
    emitter.alias(operation.results[0], emitter.module.constant(array))


def _number(text: object, kind: Type):
    """A number as the IR prints it: hexadecimal bits for floats that have no short decimal form."""
    if isinstance(text, (bool, int)):
        return bool(text) if kind.element == "i1" else text
    text = str(text)
    if text in ("true", "false"):
        return text == "true"
    if kind.is_float:
        if text.startswith("0x"):
            return np.array(int(text, 16), f"u{kind.dtype.itemsize}").view(kind.dtype)[()]
        return float(text)
    return int(text)


@handles("ub.poison")
def _poison(emitter: FunctionEmitter, operation: Operation) -> None:
    kind = operation.result_types[0]
    plain = kind.shape is None and not kind.is_float
    emitter.alias(operation.results[0], emitter.module.constant(0 if plain else kind.dtype.type(0)))
