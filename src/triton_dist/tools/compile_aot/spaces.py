"""Spaces of signatures: which variants of a kernel a library has, written beside the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import InvalidArgumentError
from ..kernel_signature import item_text, jit_function
from .names import check_function_name
from .options import OPTIONS, check_values, check_world_size

_ATTRIBUTE = "aot_spaces"
_KEYS = ("signature", "grid", "triton_algo_infos", "world_size")
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
        triton_algo_infos: a list of mappings with the values of the placeholders (numbers, texts, dtypes, None), and num_warps,
            num_stages, num_ctas, maxnreg, launch_cooperative_grid, launch_pdl. A call chooses one by its place in the
            list. [{}] if it is left out.
        world_size: ranks that the world must have; checked when it is loaded. Left out, any.
    Nothing is compiled before ``build_library``; the kernel itself is returned. Raises InvalidArgumentError.
    """
    if not isinstance(spaces, Mapping) or not spaces:
        raise InvalidArgumentError(f"aot_compile_spaces: {spaces!r} must be a mapping of names of C functions to spaces, of one at least")
    read = {name: _read(check_function_name(name), space) for name, space in spaces.items()}

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


def _read(name: str, space: Any) -> Space:
    if not isinstance(space, Mapping):
        raise InvalidArgumentError(f"space {name!r}: {space!r} must be a mapping with {', '.join(_KEYS)}")
    unknown = sorted(set(map(str, space)) - set(_KEYS))
    missing = [key for key in ("signature", "grid") if key not in space]
    if unknown or missing:
        wrong = f"unknown: {', '.join(unknown)}" if unknown else f"missing: {', '.join(missing)}"
        raise InvalidArgumentError(f"space {name!r}: {wrong}; a space has {', '.join(_KEYS)}")
    given, grid = space["signature"], space["grid"]
    signatures = [given] if isinstance(given, str) else given
    if not _is_list(signatures, str):
        raise InvalidArgumentError(f"space {name!r}: signature={given!r} must be a text with an item for each argument, or a list of them")
    if not _is_list(grid, (str, int)) or len(grid) != 3:
        raise InvalidArgumentError(f"space {name!r}: grid={grid!r} must be a grid of three expressions, as in ['%BLOCKS', '1', '1']")
    algorithms = space.get("triton_algo_infos", [{}])
    if not _is_list(algorithms, Mapping):
        raise InvalidArgumentError(f"space {name!r}: triton_algo_infos={algorithms!r} must be a list of mappings, one at least")
    world_size = space.get("world_size", 0)
    check_world_size(f"space {name!r}", world_size)
    parts = tuple(map(str, grid))
    variants = tuple(tuple(_variant(name, signature, parts, algorithm) for signature in signatures) for algorithm in algorithms)
    return Space(name, variants, world_size)


def _is_list(value: Any, of: Any) -> bool:
    """Whether it is a list or tuple, not empty, of such items."""
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 0 and all(isinstance(item, of) for item in value)


def _variant(name: str, signature: str, grid: tuple[str, ...], algorithm: Mapping[str, Any]) -> Variant:
    values = {str(key): value for key, value in algorithm.items() if key not in OPTIONS}
    named = {word for text in (signature, *grid) for word in _PLACEHOLDER.findall(text)}
    without = sorted(named - set(values))
    unused = sorted(set(values) - named)
    if without:
        raise InvalidArgumentError(f"space {name!r}: no value for %{', %'.join(without)} in triton_algo_infos {dict(algorithm)!r}")
    if unused:
        raise InvalidArgumentError(
            f"space {name!r}: {', '.join(unused)} in triton_algo_infos is neither an option ({', '.join(OPTIONS)}) nor a "
            "%placeholder of the signature or the grid"
        )
    check_values(f"space {name!r}: ", algorithm)
    texts = {key: item_text(f"space {name!r}: {key}", value) for key, value in values.items()}
    filled = [_PLACEHOLDER.sub(lambda match: texts[match[1]], text) for text in (signature, *grid)]
    return Variant(filled[0], tuple(filled[1:]), {key: value for key, value in algorithm.items() if key in OPTIONS})
