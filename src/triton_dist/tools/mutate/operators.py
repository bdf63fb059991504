"""What is mutated: one table of operators, and the places in a file where each applies.

A place is known by file, function, the text of the expression and the operator, so that it stays the same when lines move.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

WEAKER_SCOPE = {"sys": "gpu", "gpu": "cta", "intra_node": "gpu", "inter_node": "intra_node"}
WEAKER_SEMANTIC = {"acquire": "relaxed", "release": "relaxed", "acq_rel": "relaxed"}
WEAKER_CALL = {
    "fence_sys": "fence_gpu",
    "fence_gpu": "fence_cta",
    "__threadfence_system": "__threadfence",
    "__threadfence": "__threadfence_block",
    "quiet": "fence",
    "barrier_all": "sync_all",
    "barrier_all_block": "sync_all_block",
    "barrier_all_warp": "sync_all_warp",
}

_ORDERS = re.compile(
    r"wait|wait_(eq|ne|ge|le|gt|lt)|notify|__syncthreads|__syncwarp|debug_barrier|(__thread)?fence\w*|quiet\w*|\w*barrier|\w*barrier_all\w*|"
    r"sync_all\w*|team_sync\w*|signal_op|signal_wait_until\w*|set_signal|wait_event|wait_stream|synchronize|write_value|wait_value|"
    r"signal_batch|CUDA_CHECK|push_flagged"
)
"""Names of calls that order something, on the device and on the host."""

_ATOMIC = re.compile(r"atomic_\w+")
_SCOPED = re.compile(r"wait|wait_(eq|ne|ge|le|gt|lt)|notify|ld|st|atomic_\w+")
_NO_TOKEN = "(tl.program_id(0) * 0)"
"""In place of a token: a number that the compiler does not know to be 0, as a token is."""

_RESETS = ("zero_", "fill_")
_SIGNAL_NAME = re.compile(r"\w*(flag|signal|ready|arrived|finished|epoch|done|barrier)\w*", re.IGNORECASE)


@dataclass(frozen=True)
class Mutant:
    """One change of a file.

    function: qualified name of the function that it is in. expression: the mutated call as ``ast.unparse`` writes it.
    operator: a name of ``OPERATORS``. occurrence: which one of equal expressions in that function. line: where it is now.
    span: first byte and the byte behind the last one that ``replacement`` takes the place of.
    """

    path: Path
    function: str
    expression: str
    operator: str
    occurrence: int
    line: int
    span: tuple[int, int]
    replacement: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What names it in a table of equivalent mutants of its file."""
        return (self.function, self.expression, self.operator)

    def describe(self) -> str:
        """As reports name it."""
        return f"{self.path.name}:{self.line} {self.function}: {self.operator} {self.expression}"


@dataclass(frozen=True)
class Site:
    """A call, and what an operator may ask of it. parents: from the nearest one outwards."""

    call: ast.Call
    parents: tuple[ast.AST, ...]
    text: Callable[[ast.AST], str]

    @property
    def name(self) -> str:
        """The called function's last name."""
        function = self.call.func
        return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""

    @property
    def literals(self) -> list[ast.Constant]:
        """Its arguments that are strings."""
        arguments = [*self.call.args, *(keyword.value for keyword in self.call.keywords)]
        return [argument for argument in arguments if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]

    @property
    def kernel(self) -> bool:
        """Whether it is device code: in a function that is decorated by some ``jit``."""
        functions = [parent for parent in self.parents if isinstance(parent, ast.FunctionDef)]
        return any("jit" in ast.unparse(decorator) for function in functions for decorator in function.decorator_list)

    @property
    def alone(self) -> bool:
        """Whether nothing uses its value."""
        return isinstance(self.parents[0], ast.Expr)


Change = tuple[ast.AST, str]
"""A node and what takes its place."""


def _drop(site: Site) -> Iterator[Change]:
    """Leave the call out, or the loop that polls by it; where a token is used, it is a number."""
    name = site.name
    loop = next((parent for parent in site.parents if isinstance(parent, ast.stmt)), None)
    if isinstance(loop, ast.While) and site.kernel and (name == "ld" or _ATOMIC.fullmatch(name)):
        yield loop, "pass"
        return
    released = name == "st" and any(literal.value == "release" for literal in site.literals)
    if not (_ORDERS.fullmatch(name) or released or (site.alone and _ATOMIC.fullmatch(name))):
        return
    if site.alone:
        yield site.parents[0], "pass"
    elif site.kernel and (name == "wait" or name.startswith("wait_")):
        yield site.call, _NO_TOKEN


def _drop_step(site: Site) -> Iterator[Change]:
    """Leave a write or a wait out of a batch of signals."""
    if site.name not in ("Wait", "Write"):
        return
    parent = site.parents[0]
    if isinstance(parent, ast.List | ast.Tuple):
        yield site.call, "*()"
    elif isinstance(parent, ast.ListComp) and parent.elt is site.call:
        yield parent, "[]"


def _drop_reset(site: Site) -> Iterator[Change]:
    """Leave out what makes a word zero again, or moves an epoch on."""
    if not site.alone:
        return
    if site.name in _RESETS:
        yield site.parents[0], "pass"
    if site.name == "store" and len(site.call.args) >= 2:
        target, value = site.call.args[:2]
        zero = (isinstance(value, ast.Constant) and value.value == 0) or (isinstance(value, ast.Call) and "zeros" in site.text(value.func))
        if zero or _SIGNAL_NAME.fullmatch(_leftmost(target)):
            yield site.parents[0], "pass"


def _leftmost(pointer: ast.AST) -> str:
    """The name that a pointer expression begins with."""
    while not isinstance(pointer, ast.Name):
        if isinstance(pointer, ast.BinOp):
            pointer = pointer.left
        elif isinstance(pointer, ast.Call) and pointer.args:
            pointer = pointer.args[0]
        else:
            return ""
    return pointer.id


def _drop_token(site: Site) -> Iterator[Change]:
    """Use a value without its token."""
    if site.name == "consume_token" and site.call.args:
        yield site.call, site.text(site.call.args[0])


def _weaken(site: Site, table: dict[str, str]) -> Iterator[Change]:
    if _SCOPED.fullmatch(site.name):
        for literal in site.literals:
            weaker = table.get(str(literal.value))
            if weaker is not None:
                yield literal, repr(weaker)


def _weaken_scope(site: Site) -> Iterator[Change]:
    """A narrower scope; that of Triton's atomics is gpu where none is written."""
    yield from _weaken(site, WEAKER_SCOPE)
    yield from _add_keyword(site, "scope", "cta", set(WEAKER_SCOPE) | {"cta"})


def _weaken_semantic(site: Site) -> Iterator[Change]:
    """Relaxed; Triton's atomics are acq_rel where nothing is written."""
    yield from _weaken(site, WEAKER_SEMANTIC)
    yield from _add_keyword(site, "sem", "relaxed", set(WEAKER_SEMANTIC) | {"relaxed"})


def _add_keyword(site: Site, keyword: str, value: str, known: set[str]) -> Iterator[Change]:
    call = site.call
    triton = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "tl"
    if triton and _ATOMIC.fullmatch(site.name) and not any(literal.value in known for literal in site.literals):
        text = site.text(call)
        yield call, f"{text[: text.rindex(')')].rstrip().removesuffix(',')}, {keyword}={value!r})"


def _weaken_call(site: Site) -> Iterator[Change]:
    """A narrower fence, a fence for quiet, a barrier that completes no puts."""
    weaker = WEAKER_CALL.get(site.name)
    if weaker is not None:
        text = site.text(site.call.func)
        yield site.call.func, text[: len(text) - len(site.name)] + weaker


OPERATORS: dict[str, Callable[[Site], Iterator[Change]]] = {
    "drop": _drop,
    "drop-step": _drop_step,
    "drop-reset": _drop_reset,
    "drop-token": _drop_token,
    "weaken-scope": _weaken_scope,
    "weaken-semantic": _weaken_semantic,
    "weaken-call": _weaken_call,
}
"""Every operator by its name. Each gives, for a call, the nodes to replace and what by."""


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of a Python file, in the order of its lines. Raises SyntaxError and OSError as reading the file does."""
    source = path.read_bytes()
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def span(node: ast.AST) -> tuple[int, int]:
        begin, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return begin, end

    def text(node: ast.AST) -> str:
        begin, end = span(node)
        return source[begin:end].decode()

    found: list[Mutant] = []
    counts: dict[tuple, int] = {}
    for call, parents in _calls(ast.parse(source)):
        functions = [parent for parent in reversed(parents) if isinstance(parent, ast.FunctionDef | ast.ClassDef)]
        if not any(isinstance(function, ast.FunctionDef) for function in functions):
            continue
        site = Site(call, parents, text)
        name = ".".join(function.name for function in functions)
        for operator, changes in OPERATORS.items():
            for node, replacement in changes(site):
                key = (name, ast.unparse(call), operator)
                counts[key] = occurrence = counts.get(key, -1) + 1
                found.append(Mutant(path, *key, occurrence, call.lineno, span(node), replacement))
    return sorted(found, key=lambda mutant: (mutant.span, mutant.operator))


def _calls(tree: ast.AST, parents: tuple[ast.AST, ...] = ()) -> Iterator[tuple[ast.Call, tuple[ast.AST, ...]]]:
    """All calls, with what they are in. Decorators and defaults are not in a function's body, so they are left out."""
    if isinstance(tree, ast.Call):
        yield tree, parents
    children = tree.body if isinstance(tree, ast.FunctionDef) else ast.iter_child_nodes(tree)
    for child in children:
        yield from _calls(child, (tree, *parents))


def mutated(mutant: Mutant) -> bytes:
    """The file's text with the change. Every line that is not in it keeps its number."""
    source = mutant.path.read_bytes()
    begin, end = mutant.span
    gone = source[begin:end].count(b"\n") - mutant.replacement.count("\n")
    text = mutant.replacement.encode()
    if gone > 0 and mutant.replacement != "pass":
        text = b"(" + text + b"\n" * gone + b")"
    elif gone > 0:
        text += b"\n" * gone
    return source[:begin] + text + source[end:]
