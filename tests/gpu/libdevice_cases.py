"""One expression for each libdevice symbol that Triton's module wraps, found in the module's own source."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict

from tests.gpu.programs import Program, elementwise


def wrapped_symbols() -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Symbol -> (name in ``tl.extra.cuda.libdevice``, operand types, result type)."""
    from triton.language.extra.cuda import libdevice

    found: dict[str, tuple[str, tuple[str, ...], str]] = {}
    for function in ast.parse(inspect.getsource(libdevice)).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for table in (node for node in ast.walk(function) if isinstance(node, ast.Dict)):
            for key, value in zip(table.keys, table.values, strict=True):
                operands = tuple(_type_name(item) for item in key.elts)
                symbol, result = value.elts[0].value, _type_name(value.elts[1])
                found.setdefault(symbol, (function.name, operands, result))
    return found


def _type_name(node: ast.expr) -> str:
    """``core.dtype("fp32")`` -> ``fp32``; an attribute such as ``core.int32`` -> ``int32``."""
    return node.args[0].value if isinstance(node, ast.Call) else node.attr


def libdevice_programs(count: int = 4096) -> list[Program]:
    """Programs over all wrapped symbols, grouped by operand types."""
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = defaultdict(list)
    for _, (name, operands, result) in sorted(wrapped_symbols().items()):
        # A Bessel function's order is the number of steps of a recurrence, so it is kept small.
        arguments = "a & 7, b" if name in ("jn", "yn") else ", ".join("abcd"[: len(operands)])
        groups[operands].append((f"libdevice.{name}({arguments})", result))
    programs = []
    for operands, results in groups.items():
        programs += elementwise(f"libdevice.{'_'.join(operands)}", operands, results, count)
    return programs
