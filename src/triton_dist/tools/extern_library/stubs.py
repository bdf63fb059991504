"""Python stubs of a library's functions: what a kernel calls, with the types that ``extern_call`` chooses by."""

from __future__ import annotations

import itertools
import json
import keyword
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from .functions import ExternFunction

MOST_SIGNS = 4
"""Integers of a function up to which its stub takes each with and without a sign: a value's sign is no matter to the library."""

_HEAD = '''\
"""Functions of the bitcode library {library}, for kernels. Written by triton-dist build-extern; build it again instead of editing."""

from __future__ import annotations

from pathlib import Path

import triton.language as tl

import triton_dist.language as dl

LIBRARY = "{library}"
PATH = str(Path(__file__).with_name("{file}"))
'''

_STUB = '''

@tl.core.extern
def {name}({parameters}_semantic=None):
    """{description}."""
    _types = {{
{entries}    }}
    return dl.extern_call(LIBRARY, PATH, [{arguments}], _types, {pure}, _semantic=_semantic)
'''


def stubs_text(library: str, file: str, functions: Sequence[ExternFunction], pure: Collection[str] = ()) -> str:
    """A Python module with a stub for each function that a kernel can call; overloads of C++ share one.

    library: its name. file: of the bitcode, in the folder of the stubs. pure: symbols of functions that depend on their arguments only.
    """
    text = _HEAD.format(library=library, file=file)
    taken: set[str] = {"LIBRARY", "PATH", "Path", "annotations", "dl", "tl"}
    groups: dict[tuple[str, int, bool], list[ExternFunction]] = {}
    for function in functions:
        if function.callable:
            groups.setdefault((function.name or function.symbol, len(function.operands), function.symbol in pure), []).append(function)
        else:
            text += f"\n\n# {function.text()}: not here, a kernel has no values of such types\n"
    for (source_name, _, is_pure), group in groups.items():
        name = _identifier(source_name)
        if name in taken:
            name = _identifier(group[0].symbol)
        taken.add(name)
        text += _stub(name, group, is_pure)
    return text


def _stub(name: str, group: Sequence[ExternFunction], pure: bool) -> str:
    parameters = _parameters(group[0])
    entries: dict[tuple[str, ...], ExternFunction] = {function.operands: function for function in group}
    for function in group:
        for types in _alternatives(function):
            entries.setdefault(types, function)
    return _STUB.format(
        name=name,
        parameters="".join(f"{parameter}: tl.tensor, " for parameter in parameters),
        description="; ".join(function.declared or function.text() for function in group),
        entries="".join(f"        {_tuple(types)}: ({_quoted(one.symbol)}, {_quoted(one.result)}),\n" for types, one in entries.items()),
        arguments=", ".join(parameters),
        pure=pure,
    )


def _tuple(types: Sequence[str]) -> str:
    return f"({', '.join(map(_quoted, types))}{',' if len(types) == 1 else ''})"


def _quoted(text: str) -> str:
    """A text, or () for an empty one: no result."""
    return json.dumps(text) if text else "()"


def _parameters(function: ExternFunction) -> list[str]:
    names = [_identifier(name) for name in function.parameters]
    names = [f"{name}_" if name in ("_semantic", "_types", "LIBRARY", "PATH", "dl", "tl") else name for name in names]
    return names if names and len(set(names)) == len(names) else [f"argument{place}" for place in range(len(function.operands))]


def _identifier(name: str) -> str:
    found = re.sub(r"\W", "_", name)
    return f"{found}_" if keyword.iskeyword(found) or found[:1].isdigit() else found


def _alternatives(function: ExternFunction) -> list[tuple[str, ...]]:
    """Types of the arguments: as they are, and with other signs."""
    integers = [kind for kind in function.operands if re.fullmatch(r"[iu](8|16|32|64)", kind)]
    if len(integers) > MOST_SIGNS:
        return [function.operands]
    choices = [(kind, ("u" if kind[0] == "i" else "i") + kind[1:]) if kind in integers else (kind,) for kind in function.operands]
    return list(itertools.product(*choices))


def write_stubs(path: Path, library: str, bitcode: Path, functions: Sequence[ExternFunction], pure: Collection[str] = ()) -> Path:
    """Write the stubs beside the bitcode; returns their path."""
    path.write_text(stubs_text(library, bitcode.name, functions, pure))
    return path
