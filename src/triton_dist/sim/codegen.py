"""Op tree -> Python source: one generator function for each ``tt.func``, one line or so for each op.

A value of the IR is a Python local. Uniform integers and booleans are Python's own, uniform floats numpy scalars, tiles numpy arrays in
which a dimension along which nothing varies may have size 1 (a value that is the same everywhere is a numpy scalar). The function yields
wherever another program may need to run; see ``machine`` for what it yields. Handlers of single ops are in ``emit_*``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ..errors import UnsupportedOperationError
from . import emit_check, emit_timing
from .analysis import FunctionFacts, analyse, find_varying, in_order_of_dominance
from .check.actors import thread_of
from .emit_lanes import Lanes
from .ir import UNKNOWN, Block, Location, Operation
from .op_coverage import why_not_covered
from .ops import (
    arith,
    block_memory,
    debug,
    descriptor,
    divergence,
    flagged,
    inline_asm,
    lanes,
    matrix,
    multicast,
    primitives,
    reduce,
    shmem,
    shmem_collectives,
    twins,
    warps,
)
from .ops import memory as memory_ops
from .ops import timing as timing_ops
from .pointers import add_offsets, full, shift_all
from .types import Type

Handler = Callable[["FunctionEmitter", Operation], None]

HANDLERS: dict[str, Handler] = {}
"""What to emit for an op, by its name; filled by the ``emit_*`` modules."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register the decorated function as the handler of the named ops."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


_NO_EFFECT = ("arith.", "math.", "tt.addptr", "tt.splat", "gpu.barrier", "ttg.barrier", "td.rank", "td.num_ranks", "td.consume_token")
"""Ops and primitives between a signal and a wait that nobody else can observe."""


class ModuleEmitter:
    """The Python source of a whole module, with the source location of every line.

    timing: make the form that only takes time (see ``emit_timing``). checked: make the form that looks for data races (``emit_check``).
    linted: the one that looks for misuse, too (``emit_lanes``).
    """

    def __init__(self, module: Operation, threads: int, timing: bool = False, checked: bool = False, linted: bool = False) -> None:
        self.linted = linted
        self.threads = threads
        self.timing = timing
        self.checked = checked
        self.attributes = module.attributes
        self.lines: list[str] = []
        self.locations: list[Location] = []
        self.functions = {str(op.attributes["sym_name"]): op for op in module.regions[0][0].operations if op.name == "tt.func"}
        self.names = {symbol: f"f{number}_{re.sub(r'[^0-9A-Za-z_]', '_', symbol)}" for number, symbol in enumerate(self.functions)}
        self.namespace: dict[str, object] = {
            "np": np,
            "arith": arith,
            "debug": debug,
            "inline_asm": inline_asm,
            "descriptor": descriptor,
            "divergence": divergence,
            "matrix": matrix,
            "memory": memory_ops,
            "multicast": multicast,
            "primitives": primitives,
            "block_memory": block_memory,
            "flagged": flagged,
            "warps": warps,
            "reduce": reduce,
            "shmem": shmem,
            "shmem_collectives": shmem_collectives,
            "add_offsets": add_offsets,
            "full": full,
            "shift_all": shift_all,
            "timing": timing_ops,
            "twins": twins,
            "thread_of": thread_of,
            "lanes": lanes,
        }
        self._counter = 0
        self._location_ids: dict[Location, int] = {}
        self.location_table: list[Location] = []
        for symbol, function in self.functions.items():
            FunctionEmitter(self, function).emit_function(self.names[symbol])

    @property
    def entry(self) -> str:
        """Python name of the kernel."""
        for symbol, function in self.functions.items():
            if function.attributes.get("sym_visibility") == "public":
                return self.names[symbol]
        raise UnsupportedOperationError("the module has no public function")

    def fresh(self, prefix: str) -> str:
        """A Python name that is not used yet."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, value: object, prefix: str = "k") -> str:
        """Name of a module-level constant."""
        name = self.fresh(prefix)
        self.namespace[name] = value
        return name

    def dtype(self, dtype: np.dtype) -> str:
        """Name under which the generated code finds a dtype."""
        name = f"D_{dtype.name}"
        self.namespace[name] = dtype
        return name

    def scalar_type(self, dtype: np.dtype) -> str:
        """Name of the numpy scalar type of a dtype."""
        name = f"S_{dtype.name}"
        self.namespace[name] = dtype.type
        return name

    def location_id(self, location: Location) -> int:
        """Number by which the run time can name a source line."""
        number = self._location_ids.get(location)
        if number is None:
            number = self._location_ids[location] = len(self.location_table)
            self.location_table.append(location)
        return number


class FunctionEmitter:
    """Emits one ``tt.func``."""

    def __init__(self, module: ModuleEmitter, function: Operation) -> None:
        self.module = module
        self.function = function
        self.facts: FunctionFacts = analyse(function)
        find_varying(function, self.facts)
        self.names: dict[str, str] = {}
        self.types: dict[str, Type] = {}
        self.indent = 0
        self.location = UNKNOWN
        self.blocks: dict[str, Block] = {}
        """The blocks by label, in the order in which they are emitted, where early returns have made several of one."""
        self.next_block = ""
        """Name of the variable that says which of them runs next."""
        self.vector = False
        """Inside a combine function: scalars of the IR are arrays."""
        self.mask: str | None = None
        """Name of the mask of active threads, inside control flow that differs from thread to thread."""
        self.once = 0
        """How many of the loops around the present op run one round for all."""
        self.origins: dict[str, str] = {}
        self.rest: tuple[Block, int] = (Block(""), 0)
        """The block that is being emitted and the number of the op behind the present one."""
        self.limit = 0
        """The number of the op of that block at which emitting it ends."""
        self.taken = 0
        """How many ops behind the present one its handler has emitted, too."""
        self.labels: dict[str, Operation] = {}
        """Labels of inline assembly outside of braces, and the block that has each."""
        self.lanes = Lanes(self) if module.linted else None

    def line(self, text: str) -> None:
        """Append a line of Python, made from the op at the present source location."""
        self.module.lines.append("    " * self.indent + text)
        self.module.locations.append(self.location)

    def fail(self, why: str) -> UnsupportedOperationError:
        """The error for what the simulator can't run, with the source line."""
        return UnsupportedOperationError(f"{self.location}: {why}")

    def forbid_varying(self, operation: Operation) -> None:
        """Raise UnsupportedOperationError if an operand differs from thread to thread."""
        if any(name in self.facts.varying for name in operation.operands):
            raise self.fail(
                f"{operation.name} needs a value that is the same in all threads, but this one varies from thread to thread "
                "(it is from tid); use ld, st or an atomic of triton_dist.language for per-thread work"
            )

    def forbid_divergence(self, operation: Operation) -> None:
        """Raise UnsupportedOperationError where only some threads of the block may come."""
        if self.mask is not None:
            raise self.fail(
                f"{operation.name} of a tile stands where only some threads of the block may come; all threads have to reach it"
            )

    def define(self, name: str, kind: Type | None = None) -> str:
        """A fresh Python name for a value of the IR."""
        kind = kind or self.facts.types[name]
        if kind.shape is None and (self.vector or name in self.facts.varying):
            kind = Type((1,) if self.vector else (self.module.threads,), kind.element, kind.pointee)
        python = self.module.fresh("v")
        self.names[name] = python
        self.types[name] = kind
        return python

    def alias(self, name: str, python: str) -> None:
        """Let a value of the IR be an existing Python name."""
        self.define(name)
        self.names[name] = python

    def value(self, name: str) -> str:
        """Python name of a value of the IR."""
        return self.names[name]

    def kind(self, name: str) -> Type:
        """The type of a value as it is represented here: thread-varying and combined scalars are tensors."""
        return self.types[name]

    def is_tensor(self, operation: Operation) -> bool:
        """Whether an op works on arrays rather than on Python scalars."""
        return any(self.kind(name).shape is not None for name in operation.operands)

    def array(self, name: str) -> str:
        """A value as a numpy array or numpy scalar, also where it is a Python scalar."""
        python, kind = self.names[name], self.types[name]
        if kind.is_pointer:
            return f"full({python})"
        if kind.shape is None and not kind.is_float:
            return f"{self.module.scalar_type(kind.dtype)}({python})"
        return python

    def arrays(self, operation: Operation) -> list[str]:
        """``array`` of each operand."""
        return [self.array(name) for name in operation.operands]

    def values(self, operation: Operation) -> list[str]:
        """``value`` of each operand."""
        return [self.names[name] for name in operation.operands]

    def assign(self, operation: Operation, expression: str) -> None:
        """``result = expression``."""
        self.line(f"{self.define(operation.results[0])} = {expression}")

    def assign_scalar(self, operation: Operation, expression: str) -> None:
        """As ``assign``, from an expression that gives a numpy scalar: integers and booleans become Python's."""
        kind = operation.result_types[0]
        result = self.define(operation.results[0])
        if self.types[operation.results[0]].shape is not None or kind.is_float:
            self.line(f"{result} = {expression}")
        elif kind.element == "i1":
            self.line(f"{result} = bool({expression})")
        else:
            self.line(f"{result} = ({expression}).item()")

    def terms(self, name: str, kind: str) -> list[str]:
        """The values whose sum ("arith.addi") or conjunction ("arith.andi") a value is."""
        operation = self.facts.defined_by.get(name)
        if operation is not None and operation.name in (kind, "tt.broadcast") and name in self.facts.deferred:
            return [term for operand in operation.operands for term in self.terms(operand, kind)]
        return [name]

    def masks(self, name: str | None) -> str:
        """Source of the tuple of masks of a load or store."""
        if name is None:
            return "()"
        return "(" + "".join(f"{self._mask_term(term)}, " for term in self.terms(name, "arith.andi")) + ")"

    def _mask_term(self, name: str) -> str:
        """A comparison of a linear vector with one bound as ``(vector, lo, hi, axis, rank)``, anything else as its array."""
        bound = self.facts.bounds.get(name)
        if bound is None:
            return self.array(name)
        limit = self.uniform(bound.limit)
        limit = f"{limit} + {bound.add}" if bound.add else limit
        limits = f"None, {limit}" if bound.is_upper else f"{limit}, None"
        return f"({self.array(bound.vector)}, {limits}, {bound.axis}, {bound.rank})"

    def uniform(self, name: str) -> str:
        """A tensor that is the same everywhere, as a Python int: what it was splat from."""
        operation = self.facts.defined_by[name]
        if operation.name == "tt.splat":
            return self.value(operation.operands[0])
        return str(operation.attributes["value"]).partition("<")[2].partition(">")[0]

    def origin(self, name: str) -> str:
        """Python name of the allocation that a pointer came from, or ``None``."""
        source = self.facts.origin.get(name)
        return self.origins.get(source, "None") if source else "None"

    def location_number(self) -> int:
        """Number of the present source line, for what reports it at run time."""
        return self.module.location_id(self.location)

    def emit_function(self, python_name: str) -> None:
        """Emit the whole function, as a generator function of the program and the arguments."""
        entry = self.function.regions[0][0]
        self.location = self.function.location
        parameters = "".join(f", {self.define(name)}" for name, _ in entry.arguments)
        self.line(f"def {python_name}(C{parameters}):")
        self.indent += 1
        for name, kind in entry.arguments:
            if kind.is_pointer and kind.shape is None:
                self.origins[name] = self.module.fresh("o")
                self.line(f"{self.origins[name]} = C.launch.find({self.names[name]})")
        self.emit_blocks(self.function.regions[0])
        self.line("if 0: yield")
        self.indent -= 1

    def emit_blocks(self, blocks: list[Block]) -> None:
        """Emit a region. Several blocks become the branches of a loop, so that each is emitted once however many ways lead to it."""
        if len(blocks) == 1:
            self.emit_block(blocks[0])
            return
        outer = self.blocks, self.next_block
        self.blocks, self.next_block = in_order_of_dominance(blocks), self.module.fresh("block")
        for block in list(self.blocks.values())[1:]:
            for name, _ in block.arguments:
                self.define(name)
        self.line(f"{self.next_block} = 0")
        self.line("while True:")
        self.indent += 1
        for number, block in enumerate(self.blocks.values()):
            self.line(f"{'elif' if number else 'if'} {self.next_block} == {number}:")
            self.indent += 1
            self.emit_block(block)
            self.indent -= 1
        self.indent -= 1
        self.blocks, self.next_block = outer

    def emit_block(self, block: Block) -> None:
        """Emit the ops of a block, in order."""
        if self.module.timing and not self.vector:
            emit_timing.charge_block(self, block)
        self.emit_operations(block, 0, len(block.operations))

    def emit_operations(self, block: Block, start: int, end: int) -> None:
        """Emit the ops of a block from number ``start`` up to ``end``."""
        number = start
        while number < end:
            self.rest, self.limit, self.taken = (block, number + 1), end, 0
            self.emit_operation(block.operations[number])
            number += 1 + self.taken
        self.taken = 0

    def yield_after_release(self) -> None:
        """Let others run between a signal and what follows it: whoever set a flag before its data is then seen to have done so.

        Nothing comes between where a wait follows at once, which lets others run by itself.
        """
        block, number = self.rest
        for operation in block.operations[number:]:
            symbol = str(operation.attributes.get("symbol", ""))
            if symbol.startswith("td.wait"):
                return
            if not operation.name.startswith(_NO_EFFECT) and not symbol.startswith(_NO_EFFECT):
                break
        self.line("yield")

    def emit_operation(self, operation: Operation) -> None:
        """Emit one op by its handler. Raises UnsupportedOperationError, with the source line, if there is none."""
        if operation.location.line:
            self.location = operation.location
        if operation.results and operation.results[0] in self.facts.deferred:
            return
        handler = HANDLERS.get(operation.name)
        if self.module.timing:
            handler = emit_timing.handler(self, operation, handler)
        if handler is None:
            reason = why_not_covered(operation.name)
            raise self.fail(
                f"the simulator does not implement {operation.name!r}{f' ({reason})' if reason else ''}; "
                "use another op here, or report the kernel so that it can be added"
            )
        if self.lanes is not None:
            self.lanes.before(operation)
        begin = len(self.module.lines)
        try:
            handler(self, operation)
            if self.module.checked and not self.vector:
                emit_check.emit_checked(self, operation, begin)
            if self.lanes is not None:
                self.lanes.after(operation)
        except UnsupportedOperationError as error:
            if str(self.location) in str(error):
                raise
            raise self.fail(str(error)) from None  # it came from where no source line is known


def generate(
    module: Operation, name: str, threads: int, timing: bool = False, checked: bool = False, linted: bool = False
) -> tuple[Callable, list[Location], list[Location], str]:
    """Compile a module.

    name: of the kernel, for tracebacks.
    threads: threads of a block, the size of a thread-varying scalar.
    timing: for a run for its time. checked: for a run that looks for data races. linted: for one that looks for misuse, too.
    Returns (generator function, source location of each generated line, table of locations by number, file name of the code).
    Raises UnsupportedOperationError, with the source line, for an op that the simulator has no meaning for.
    """
    from . import emit_arith, emit_asm, emit_control, emit_memory, emit_shape, emit_threads  # noqa: F401  (they fill HANDLERS)

    emitter = ModuleEmitter(module, threads, timing, checked, linted)
    filename = f"<simulated {name}>"
    source = "\n".join(emitter.lines)
    exec(compile(source, filename, "exec"), emitter.namespace)  # noqa: S102  (the source is our own)
    function = emitter.namespace[emitter.entry]
    function.source = source  # type: ignore[attr-defined]
    return function, emitter.locations, emitter.location_table, filename  # type: ignore[return-value]
