"""The kernel decorator ``triton_dist.jit``, and what it adds to Triton's jit functions."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Callable
from typing import Any

import triton
from triton import knobs
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import bitcode, nvshmem, shared_ledger
from triton_dist.primitives.warp_specialization import IN_PARTITIONS, partitions_with_region


def jit(fn: Callable | None = None, **options: Any) -> Any:
    """Compile a function as a Triton kernel or device function that may use the primitives of ``triton_dist.language``.

    Takes every option of ``triton.jit`` (``do_not_specialize``, ``noinline``, ``repr``, ...), with or without parentheses, and stands
    where ``triton.jit`` may stand, under ``triton.autotune`` and ``triton.heuristics`` too. The result is a JITFunction of Triton's whose
    ``src`` is the user's text; simt regions and assigned subscripts, which Triton can't parse, are rewritten when it is parsed.
    """

    def decorate(function: Callable) -> JITFunction:
        if knobs.runtime.interpret:
            return triton.jit(function, **options)
        return DistributedFunction(function, **options)

    return decorate(fn) if fn is not None else decorate


class DistributedFunction(JITFunction):
    """A jit function whose syntax tree is rewritten; its cache key covers the rewriting."""

    def parse(self) -> ast.Module:
        """The syntax tree that Triton compiles and hashes. Raises KernelSourceError."""
        return rewritten(self, super().parse())

    @property
    def cache_key(self) -> str:
        """Triton's key of the text and of what it calls and, where that is rewritten, of the lowerings of regions, too."""
        return key_of_rewritten(self, super().cache_key)

    __hash__ = JITFunction.__hash__

    @property
    def fn(self) -> Callable:
        """The Python function. ``triton.autotune`` reads it when it makes an Autotuner, whose choice may have to be that of all ranks."""
        frame = sys._getframe(1)
        if frame.f_code is Autotuner.__init__.__code__:
            from triton_dist.tools.autotune.kernel import made

            made(frame.f_locals.get("self"))
        return self._function

    @fn.setter
    def fn(self, function: Callable) -> None:
        self._function = function

    enlarges_shared_memory = True
    """Launches ask for the shared memory that simt regions need beside Triton's."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Launch, as Triton does; with NVSHMEM's device library among the options where ``initialize(shmem="nvshmem")`` was called."""
        library = _nvshmem_library()
        if library is not None:
            kwargs["extern_libs"] = {**dict(kwargs.get("extern_libs") or {}), nvshmem.LIBRARY: library}
        return super().run(*args, grid=grid, warmup=warmup, **kwargs)

    def create_binder(self):
        binder = super().create_binder()
        # Triton compiles by this attribute, at once or in another thread.
        self.compile = functools.partial(compile_and_prepare, self.compile, binder[3])
        return binder


def _nvshmem_library() -> str | None:
    """NVSHMEM's device library if this process uses it; its module is loaded by a world that does."""
    module = sys.modules.get("triton_dist.runtime.cuda.nvshmem")
    return None if module is None else module.library_in_use()


def compile_and_prepare(compile_kernel: Callable, backend: Any, *arguments: Any, **keywords: Any) -> Any:
    """What ``compile_kernel`` (Triton's) makes of the arguments, with libraries as they are now, and prepared to be loaded."""
    kernel = compile_kernel(*arguments, **keywords)
    changed = bitcode.changed_libraries(kernel.asm.get("ttir"))
    if changed:
        # Named in the options, a library's content is part of Triton's cache key.
        options = dict(keywords.pop("options", None) or {})
        options["extern_libs"] = {**dict(options.get("extern_libs") or {}), **changed}
        kernel = compile_kernel(*arguments, **keywords, options=options)
    prepare_kernel(kernel, backend)
    return kernel


def prepare_kernel(kernel: Any, backend: Any) -> None:
    """What a compiled kernel with simt regions needs before it is loaded; for any other nothing.

    kernel: what Triton's ``compile`` returned. backend: Triton's backend. Raises PrimitiveArgumentError for a region whose function was
    called in a loop with ``warp_specialize=True``.
    """
    shared_ledger.enlarge(kernel, backend)
    ttgir = kernel.asm.get("ttgir")
    if isinstance(ttgir, str) and len(partitions_with_region(ttgir)) > 1:
        raise PrimitiveArgumentError(f"{kernel.metadata.name}: {IN_PARTITIONS}")


def rewritten(function: Any, tree: ast.Module) -> ast.Module:
    """The rewritten tree of a jit function (any of Triton's); the same tree where there is nothing to rewrite."""
    from triton_dist.primitives import source_rewrite

    if not source_rewrite.needs_rewrite(tree):
        return tree
    code = function.fn.__code__
    return source_rewrite.rewrite(tree, function.get_capture_scope(), code.co_filename, _line_of_def(function))


def key_of_rewritten(function: Any, key: str) -> str:
    """The cache key of a jit function whose tree is rewritten, from the one that Triton computed."""
    if not _text_needs_rewrite(function.src):
        return key
    return hashlib.sha256((key + _stamp()).encode()).hexdigest()


@functools.lru_cache(maxsize=1024)
def _text_needs_rewrite(text: str) -> bool:
    from triton_dist.primitives import source_rewrite

    return source_rewrite.needs_rewrite(ast.parse(text))


@functools.cache
def _stamp() -> str:
    from triton_dist.primitives.stamp import compute_stamp

    return compute_stamp()


def _line_of_def(function: Any) -> int:
    """Line of the file in which ``def`` stands, below the decorators: line 1 of the tree."""
    lines = (number for number, line in enumerate(function.raw_src) if line.strip().startswith("def "))
    return function.starting_line_number + next(lines, 0)
