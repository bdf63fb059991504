"""Whether a kernel communicates, found in its text: then all ranks have to launch it, and with the same config."""

from __future__ import annotations

import ast
import weakref
from typing import Any

from triton.runtime.jit import JITFunction

_MODULES = ("triton_dist.primitives.shmem_functions", "triton_dist.primitives.shmem_team_functions")
"""All functions of these talk to other ranks."""

_PREFIXES = ("wait", "notify", "symm_at", "ld_acquire", "red_release", "arrive", "multimem", "remote")
"""Of the other modules of primitives the functions whose names begin so."""

_known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def communicates(kernel: JITFunction) -> bool:
    """Whether a jit function, or one that it may call, uses a primitive that concerns other ranks."""
    if kernel not in _known:
        _known[kernel] = _search(kernel, set())
    return _known[kernel]


def _search(function: JITFunction, seen: set[int]) -> bool:
    seen.add(id(function))
    scope = function.get_capture_scope()
    for node in ast.walk(ast.parse(function.src)):
        found = _value(node, scope)
        if not isinstance(found, JITFunction) or id(found) in seen:
            continue
        if found.__module__.startswith("triton_dist.primitives."):
            if found.__module__ in _MODULES or found.fn.__name__.startswith(_PREFIXES):
                return True
        elif _search(found, seen):
            return True
    return False


def _value(node: ast.AST, scope: Any) -> Any:
    """What a name, or an attribute of one, stands for when the kernel is compiled; None if it is no such expression."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, scope)
        return None if owner is None else getattr(owner, node.attr, None)
    return None
