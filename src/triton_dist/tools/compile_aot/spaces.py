"""Spaces of signatures: which variants of a kernel a library has, written beside the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidArgumentError
from ..kernel_signature import jit_function
from .generate import check_name

_ATTRIBUTE = "aot_spaces"
_KEYS = ("signature", "grid", "triton_algo_infos", "world_size")
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_cooperative_grid", "launch_pdl")
_PLACEHOLDER = re.compile(r"%([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Variant:
    """One compilation of a space: the signature and the grid with values filled in, the options of the compiler."""

    signature: str
    grid: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Space:
    """One C function: its variants by algorithm, each a list of which the arguments of a call choose the first that fits."""

    name: str
    algorithms: tuple[tuple[Variant, ...], ...]
    world_size: int


def aot_compile_spaces(spaces: Mapping[str, Mapping[str, Any]]) -> Callable[[Any], Any]:
    """Decorator of a kernel (above ``triton.autotune`` and ``jit``): the C functions that it becomes in a library.

    spaces: by the name of the C function a mapping with
        signature: "*bf16:16, *bf16, i32, %BLOCK", as ``triton.tools.compile`` takes it; ``%NAME`` is a value of the algorithm. Or a list of
            these, with other hints: a call takes the variant whose hints its arguments fulfil, the one with the most hints first.
        grid: three C expressions of arguments and ``%NAME``.
        triton_algo_infos: a list of mappings with the values of the placeholders, and num_warps, num_stages, num_ctas, maxnreg,
            launch_cooperative_grid, launch_pdl. A call chooses one by its place in the list. [{}] if it is left out.
        world_size: ranks that the world must have; checked when it is loaded. Left out, any.
    Nothing is compiled before ``build_library``; the kernel itself is returned. Raises InvalidArgumentError.
    """
    read = {name: _read(check_name(name), space) for name, space in spaces.items()}

    def decorate(kernel: Any) -> Any:
        jit_function(kernel)
        setattr(kernel, _ATTRIBUTE, {**getattr(kernel, _ATTRIBUTE, {}), **read})
        return kernel

    return decorate


def spaces_of(kernel: Any) -> dict[str, Space]:
    """The spaces that ``aot_compile_spaces`` gave to a kernel, by name. Raises InvalidArgumentError if there are none."""
    found = getattr(kernel, _ATTRIBUTE, None)
    if not found:
        raise InvalidArgumentError(f"{jit_function(kernel).__name__} has no spaces; decorate it by aot_compile_spaces")
    return dict(found)


def _read(name: str, space: Mapping[str, Any]) -> Space:
    unknown = sorted(set(space) - set(_KEYS))
    missing = [key for key in ("signature", "grid") if key not in space]
    if unknown or missing:
        wrong = f"unknown: {', '.join(unknown)}" if unknown else f"missing: {', '.join(missing)}"
        raise InvalidArgumentError(f"space {name!r}: {wrong}; a space has {', '.join(_KEYS)}")
    given = space["signature"]
    signatures = [given] if isinstance(given, str) else list(given)
    algorithms = list(space.get("triton_algo_infos") or [{}])
    grid = space["grid"]
    if not signatures or isinstance(grid, str) or not isinstance(grid, Sequence) or len(grid) != 3:
        raise InvalidArgumentError(f"space {name!r}: a signature at least, and a grid of three expressions, as in ['%BLOCKS', '1', '1']")
    parts = tuple(map(str, grid))
    variants = tuple(tuple(_variant(name, signature, parts, algorithm) for signature in signatures) for algorithm in algorithms)
    return Space(name, variants, int(space.get("world_size", 0)))


def _variant(name: str, signature: str, grid: tuple[str, ...], algorithm: Mapping[str, Any]) -> Variant:
    values = {key: value for key, value in algorithm.items() if key not in _OPTIONS}
    named = {word for text in (signature, *grid) for word in _PLACEHOLDER.findall(text)}
    without = sorted(named - set(values))
    unused = sorted(set(values) - named)
    if without:
        raise InvalidArgumentError(f"space {name!r}: no value for %{', %'.join(without)} in triton_algo_infos {dict(algorithm)!r}")
    if unused:
        raise InvalidArgumentError(
            f"space {name!r}: {', '.join(unused)} in triton_algo_infos is neither an option ({', '.join(_OPTIONS)}) nor a "
            "%placeholder of the signature or the grid"
        )
    filled = [_PLACEHOLDER.sub(lambda match: repr(values[match[1]]), text) for text in (signature, *grid)]
    return Variant(filled[0], tuple(filled[1:]), {key: value for key, value in algorithm.items() if key in _OPTIONS})
