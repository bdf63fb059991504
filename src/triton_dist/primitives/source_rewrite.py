"""Rewrites what stock Triton can't parse into calls that it can: simt regions, and subscripts that are assigned.

``rewrite`` takes the syntax tree of a kernel and gives one back. Every node keeps the line and column that it came from, so that errors,
tracebacks and debug information name the user's text. Functions that are called are put into the tree as constants: no name of the kernel
can hide them, and none has to be added to its globals. ``rewrite`` works on any jit function's tree; ``triton_dist.jit`` uses it for its
own functions (``jit_function``).

- ``with simt_exec_region() as (i, n): body`` becomes ``(i, n) = enter_region(names)``, the body, ``exit_region()``. The names are those
  of which the body takes an element; which of them are tiles is known when the kernel is traced.
- ``t[i] = v`` becomes ``t = set_element(t, i, v)`` and ``t[i] += v`` becomes ``t = update_element(t, i, "__add__", v)``, everywhere.
- ``t[i]`` without slices becomes ``get_element(t, i)``, inside a region.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, TypeGuard

from triton_dist.errors import KernelSourceError
from triton_dist.primitives import region

_OPERATORS = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.Div: "__truediv__",
    ast.FloorDiv: "__floordiv__",
    ast.Mod: "__mod__",
    ast.LShift: "__lshift__",
    ast.RShift: "__rshift__",
    ast.BitAnd: "__and__",
    ast.BitOr: "__or__",
    ast.BitXor: "__xor__",
}


def needs_rewrite(tree: ast.AST) -> bool:
    """Whether a kernel has a ``with`` statement or assigns a subscript; for any other ``rewrite`` gives the same tree back."""
    return any(
        isinstance(node, ast.With) or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)) for node in ast.walk(tree)
    )


def rewrite(tree: ast.Module, scope: Mapping[str, Any], place: str = "<kernel>", first_line: int = 1) -> ast.Module:
    """The tree with regions and assigned subscripts as calls.

    scope: the globals and closure variables of the kernel, in which the names of ``simt_exec_region`` are looked up.
    place, first_line: the file, and the line in it of the tree's line 1, for messages.
    Raises KernelSourceError, with file and line, for a region or a subscript that has no meaning.
    """
    return ast.fix_missing_locations(_Rewriter(scope, place, first_line).visit(tree))


class _Rewriter(ast.NodeTransformer):
    def __init__(self, scope: Mapping[str, Any], place: str, first_line: int) -> None:
        self.scope = scope
        self.place = place
        self.first_line = first_line
        self.inside = False

    def fail(self, node: ast.AST, why: str) -> KernelSourceError:
        line = self.first_line + getattr(node, "lineno", 1) - 1
        return KernelSourceError(f"{self.place}:{line}: {why}")

    def visit_With(self, node: ast.With) -> Any:
        calls = [item.context_expr for item in node.items if self._is_region(item.context_expr)]
        if not calls:
            return self.generic_visit(node)
        if len(node.items) > 1:
            raise self.fail(node, "simt_exec_region stands alone in its with statement; put the others into a with of their own")
        if self.inside:
            raise self.fail(node, "a simt_exec_region inside another one; its code already runs thread by thread")
        call, target = calls[0], node.items[0].optional_vars
        if call.args or call.keywords:
            raise self.fail(call, "simt_exec_region takes no argument")
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return):
                raise self.fail(inner, "return inside simt_exec_region; all threads have to reach the end of the region")
        names = ast.Constant(value=self._elements_of(node.body))  # type: ignore[arg-type]
        entry: ast.expr = _call(region.enter_region, [names], call)
        self.inside = True
        body = [statement for old in node.body for statement in _as_list(self.visit(old))]
        self.inside = False
        return [self._bind(target, entry, node), *body, _statement(_call(region.exit_region, [], node), node)]

    def _bind(self, target: ast.expr | None, entry: ast.expr, node: ast.With) -> ast.stmt:
        if target is None:
            return _statement(entry, node)
        if isinstance(target, ast.Tuple) and len(target.elts) == 2 and all(isinstance(name, ast.Name) for name in target.elts):
            return ast.copy_location(ast.Assign(targets=[target], value=entry), node)
        raise self.fail(node, "simt_exec_region gives two values: write 'as (thread_idx, num_threads)', or nothing")

    def visit_Assign(self, node: ast.Assign) -> Any:
        target = node.targets[0]
        if any(isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store) for one in node.targets for inner in ast.walk(one)):
            if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
                raise self.fail(node, "several targets of which one is a subscript; assign them one after the other")
            return self._assign_element(target, self.visit(node.value), node)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if isinstance(node.target, ast.Subscript):
            raise self.fail(node, "an element that is assigned has no annotation; leave it out")
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target = node.target
        if not isinstance(target, ast.Subscript):
            return self.generic_visit(node)
        name = self._name_of(target, node)
        operator = _OPERATORS.get(type(node.op))
        if operator is None:
            raise self.fail(node, "this operator can't update an element; write t[i] = ... instead")
        arguments = [_load(name), self.visit(target.slice), ast.Constant(value=operator), self.visit(node.value)]
        return _assign(name, _call(region.update_element, arguments, node), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        if self.inside and isinstance(node.ctx, ast.Load) and not _has_slice(node.slice):
            return _call(region.get_element, [node.value, node.slice], node)
        return node

    def _assign_element(self, target: ast.Subscript, value: ast.expr, node: ast.stmt) -> ast.stmt:
        name = self._name_of(target, node)
        return _assign(name, _call(region.set_element, [_load(name), self.visit(target.slice), value], node), node)

    def _name_of(self, target: ast.Subscript, node: ast.stmt) -> ast.Name:
        if not isinstance(target.value, ast.Name):
            raise self.fail(node, "only elements of what a variable names can be assigned; give the tile or vector a name first")
        if _has_slice(target.slice):
            raise self.fail(node, "a slice can't be assigned; assign single elements, or use tl.where")
        return target.value

    def _elements_of(self, body: list[ast.stmt]) -> tuple[str, ...]:
        """Names of which the body takes or stores an element."""
        names: dict[str, None] = {}
        for node in (inner for statement in body for inner in ast.walk(statement)):
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and not _has_slice(node.slice):
                names[node.value.id] = None
            elif isinstance(node, ast.Call) and self._resolve(node.func) in (region.extract, region.insert):
                tile = node.args[0] if node.args else next((word.value for word in node.keywords if word.arg == "input"), None)
                if isinstance(tile, ast.Name):
                    names[tile.id] = None
        return tuple(names)

    def _is_region(self, node: ast.expr) -> TypeGuard[ast.Call]:
        return isinstance(node, ast.Call) and self._resolve(node.func) is region.simt_exec_region

    def _resolve(self, node: ast.expr) -> Any:
        """What a name or a dotted name stands for outside the kernel; None if that is not known."""
        if isinstance(node, ast.Name):
            return self.scope.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self._resolve(node.value), node.attr, None)
        return None


def _has_slice(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(part, ast.Slice) or (isinstance(part, ast.Constant) and part.value in (None, Ellipsis)) for part in parts)


def _call(function: Any, arguments: list[ast.expr], node: ast.AST) -> ast.expr:
    called = ast.copy_location(ast.Constant(value=function), node)
    return ast.copy_location(ast.Call(func=called, args=arguments, keywords=[]), node)


def _load(name: ast.Name) -> ast.Name:
    return ast.copy_location(ast.Name(id=name.id, ctx=ast.Load()), name)


def _assign(name: ast.Name, value: ast.expr, node: ast.stmt) -> ast.stmt:
    target = ast.copy_location(ast.Name(id=name.id, ctx=ast.Store()), name)
    return ast.copy_location(ast.Assign(targets=[target], value=value), node)


def _statement(value: ast.expr, node: ast.AST) -> ast.stmt:
    return ast.copy_location(ast.Expr(value=value), node)


def _as_list(result: Any) -> list[ast.stmt]:
    return result if isinstance(result, list) else [result]
