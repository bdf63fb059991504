"""What ``torch.compile`` needs for kernels with this package's names in them.

Inductor writes a kernel's text into a module of its own and gives that module the names that the text uses, but not those of modules:
``dl`` would be unknown there. Its function that makes the text is wrapped, so that the names of this package are imported.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from triton.runtime.jit import JITFunction

_WRITER = "torch._inductor.codegen.wrapper"
_MAKES_TEXT = "user_defined_triton_kernel_transitive_closure_source_code"
_PACKAGE = __name__.partition(".")[0]


def import_names_in_inductor() -> None:
    """Have Inductor import the names of this package that a kernel uses; when Inductor is imported, if it is not yet. Once a process."""
    if _WRITER in sys.modules:
        _wrap(sys.modules[_WRITER])
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


class _Watch(importlib.abc.MetaPathFinder):
    """Sees Inductor's module being imported, once."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _WRITER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                _wrap(module)

            spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def _wrap(writer: ModuleType) -> None:
    make = getattr(writer, _MAKES_TEXT, None)
    if make is None:
        logging.getLogger("triton_dist").warning("torch %s has no %s: torch.compile won't know dl", torch.__version__, _MAKES_TEXT)
    elif not hasattr(make, "__wrapped__"):
        setattr(writer, _MAKES_TEXT, _importing(make))


def _importing(make: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(make)
    def make_and_import(kernel: Any, *arguments: Any, **options: Any) -> str:
        text = make(kernel, *arguments, **options)
        return "\n".join([text.rstrip("\n"), *imports_of(kernel), ""])

    return make_and_import


def imports_of(kernel: JITFunction) -> list[str]:
    """The import lines for what a kernel, and the user's functions that it calls, have of this package: modules and functions."""
    found: dict[str, str] = {}
    seen: set[int] = set()
    pending = [kernel]
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        names = function.fn.__globals__
        for name in function.fn.__code__.co_names:
            value = names.get(name)
            if isinstance(value, ModuleType):
                if value.__name__.partition(".")[0] == _PACKAGE:
                    found.setdefault(name, f"import {value.__name__} as {name}")
            elif isinstance(value, JITFunction):
                if value.fn.__module__.partition(".")[0] == _PACKAGE:
                    found.setdefault(name, f"from {value.fn.__module__} import {value.fn.__name__} as {name}")
                else:
                    pending.append(value)
    return list(found.values())
