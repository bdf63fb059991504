"""The one table of device primitives: operands and their types, who calls, memory order, effect and allowed choices.

Everything that must agree between targets is a row here: the argument checks and their messages, the symbol under which
the simulator sees a primitive, and the documentation. How a row is lowered is in ``cuda.py``, ``hip.py`` and ``sim.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    """What an operand may be; the text is what an error message says is allowed."""

    POINTER = "a scalar pointer"
    POINTERS = "a pointer or a tensor of pointers"
    RANK = "an integer (a Python int, a constexpr, or a scalar of any integer type)"
    RANKS = "an integer or a tensor of integers (a Python int, a constexpr, or any integer type)"
    COUNT = "an integer (a Python int, a constexpr, or a scalar of any integer type)"
    SIZE = "a number of bytes (a Python int, a constexpr, or a scalar of any integer type)"
    WORD = "an integer that fits the word the pointer points to"
    SCALAR = "a scalar of 8 to 64 bits"
    VECTOR = "a vector of the type the pointer points to"
    VALUE = "a scalar of the type the pointer points to, or one that converts to it"
    ANY = "a pointer, a tensor, a scalar, a block pointer or a tensor descriptor"
    TOKEN = "the token that a wait returned"
    LANES = "a 32-bit mask of the warp's threads (64-bit on AMD GPUs), an integer"
    PREDICATE = "a truth value or an integer scalar"
    SHARED = "an address in shared memory"


class Caller(Enum):
    """Who calls a primitive together: each thread for itself, the threads of a warp that a mask names, all threads of the block, or the
    group that the level names."""

    THREAD = "thread"
    WARP = "warp"
    GROUP = "group"
    BLOCK = "block"
    ANY = "any"


class Result(Enum):
    """What a primitive returns."""

    NONE = "nothing"
    INT32 = "int32"
    TOKEN = "token (int32)"
    ELEMENT = "the type the pointer points to"
    SAME = "the type of the first operand"
    SECOND = "the type of the second operand"
    CONSTEXPR = "constexpr"
    VECTOR = "a vector of the type the pointer points to"


@dataclass(frozen=True)
class Operand:
    """One run-time operand: its public name, what it may be, and the element types a pointer may have (empty: any).

    like: the pointer operand whose element type a word or value takes; the first operand by default.
    """

    name: str
    kind: Kind
    elements: tuple[str, ...] = ()
    like: str = ""


@dataclass(frozen=True)
class Choice:
    """One compile-time parameter: public name, the key in the simulator's symbol, allowed values, and why others are refused."""

    name: str
    key: str
    allowed: tuple[str | int, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Primitive:
    """One row of the table.

    ``pure`` says that the value depends on nothing that a store can change, so the compiler may merge, move or delete it.
    ``internal`` ones are parts of others and are not called by kernels.
    """

    name: str
    doc: str
    caller: Caller = Caller.ANY
    order: str = "none"
    effect: str = "none"
    operands: tuple[Operand, ...] = ()
    choices: tuple[Choice, ...] = ()
    result: Result = Result.NONE
    pure: bool = False
    internal: bool = False


WORDS = ("int32", "uint32", "int64", "uint64")
"""Types of a signal word."""

SCALARS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "fp16", "bf16", "fp32", "fp64")
"""Types that a thread loads or stores in one piece."""

_SCOPES = ("cta", "gpu", "sys")
_SCOPE = Choice("scope", "scope", _SCOPES)
_NO_RELEASE = {
    "release": "it reads, so it has nothing to release",
    "acq_rel": "it reads, so it has nothing to release",
}
_NO_ACQUIRE = {
    "acquire": "it writes, so it has nothing to acquire",
    "acq_rel": "it writes, so it has nothing to acquire",
}
_LOAD_SEMANTIC = Choice("semantic", "sem", ("relaxed", "acquire"), _NO_RELEASE)
_STORE_SEMANTIC = Choice("semantic", "sem", ("relaxed", "release"), _NO_ACQUIRE)
_ATOMIC_SEMANTIC = Choice("semantic", "sem", ("relaxed", "acquire", "release", "acq_rel"))

_VECTOR_SIZE = Choice("vec_size", "n", (1, 2, 4, 8, 16, 32, 64, 128))
_VECTOR_SCOPE = Choice("scope", "scope", ("", "cta", "gpu", "sys"))

MULTICAST_WORDS = ("int32", "int64")
"""Types of the words of a multicast access; what is in them, its choice of a type says."""

_MULTICAST_TYPE = Choice("type", "type", ("b32", "b64", "f32", "f16x2", "bf16x2"))

_ROWS = (
    Primitive(
        name="rank",
        doc="Rank of the calling process in the world.",
        choices=(Choice("axis", "axis", (-1, 0)),),
        result=Result.INT32,
        pure=True,
    ),
    Primitive(
        name="num_ranks",
        doc="Number of ranks in the world.",
        choices=(Choice("axis", "axis", (-1, 0)),),
        result=Result.INT32,
        pure=True,
    ),
    Primitive(
        name="symm_at",
        doc="The same symmetric object on another rank.",
        operands=(Operand("ptr", Kind.POINTERS), Operand("rank", Kind.RANKS)),
        result=Result.SAME,
        pure=True,
    ),
    Primitive(
        name="wait",
        doc="Blocks until each of n consecutive words compares as asked.",
        caller=Caller.BLOCK,
        order="acquire at scope, then a block barrier",
        effect="reads the words",
        operands=(Operand("barrierPtrs", Kind.POINTER, WORDS), Operand("numBarriers", Kind.COUNT), Operand("waitValue", Kind.WORD)),
        choices=(_SCOPE, _LOAD_SEMANTIC, Choice("cmp", "cmp", ("eq", "ne", "gt", "ge", "lt", "le"))),
        result=Result.TOKEN,
    ),
    Primitive(
        name="consume_token",
        doc="The value, made to depend on the wait that returned the token.",
        order="data dependence",
        operands=(Operand("value", Kind.ANY), Operand("token", Kind.TOKEN)),
        result=Result.SAME,
    ),
    Primitive(
        name="notify",
        doc="Sets or adds to a signal word of a rank, after all earlier stores of the block.",
        caller=Caller.BLOCK,
        order="a block barrier, then release at the scope that comm_scope needs",
        effect="writes the word",
        operands=(Operand("ptr", Kind.POINTER, WORDS), Operand("rank", Kind.RANK), Operand("signal", Kind.WORD)),
        choices=(Choice("sig_op", "op", ("set", "add")), Choice("comm_scope", "scope", ("gpu", "intra_node", "inter_node"))),
    ),
    Primitive(
        name="ld",
        doc="Loads one scalar with a memory order.",
        caller=Caller.THREAD,
        order="relaxed or acquire at scope",
        effect="reads",
        operands=(Operand("ptr", Kind.POINTER, SCALARS),),
        choices=(_SCOPE, _LOAD_SEMANTIC),
        result=Result.ELEMENT,
    ),
    Primitive(
        name="st",
        doc="Stores one scalar with a memory order.",
        caller=Caller.THREAD,
        order="relaxed or release at scope",
        effect="writes",
        operands=(Operand("ptr", Kind.POINTER, SCALARS), Operand("val", Kind.VALUE)),
        choices=(_SCOPE, _STORE_SEMANTIC),
    ),
    Primitive(
        name="atomic_add",
        doc="Adds to a word and returns what was there.",
        caller=Caller.THREAD,
        order="as given, at scope",
        effect="reads and writes",
        operands=(Operand("ptr", Kind.POINTER, WORDS), Operand("val", Kind.WORD)),
        choices=(_SCOPE, _ATOMIC_SEMANTIC),
        result=Result.ELEMENT,
    ),
    Primitive(
        name="atomic_cas",
        doc="Replaces a word if it holds the compare value, and returns what was there.",
        caller=Caller.THREAD,
        order="as given, at scope",
        effect="reads and writes",
        operands=(Operand("ptr", Kind.POINTER, WORDS), Operand("cmp_val", Kind.WORD), Operand("target_val", Kind.WORD)),
        choices=(_SCOPE, _ATOMIC_SEMANTIC),
        result=Result.ELEMENT,
    ),
    *(
        Primitive(
            name=f"atomic_{operation}",
            doc=f"{doc} and returns what was there.",
            caller=Caller.THREAD,
            order="as given, at scope",
            effect="reads and writes",
            operands=(Operand("ptr", Kind.POINTER, WORDS), Operand("val", Kind.WORD)),
            choices=(_SCOPE, _ATOMIC_SEMANTIC),
            result=Result.ELEMENT,
        )
        for operation, doc in (
            ("exch", "Replaces a word"),
            ("min", "Puts the smaller of a word and a value into the word"),
            ("max", "Puts the larger of a word and a value into the word"),
            ("and", "Combines a word with a value by and"),
            ("or", "Combines a word with a value by or"),
            ("xor", "Combines a word with a value by exclusive or"),
        )
    ),
    Primitive(
        name="ld_vector",
        doc="Loads consecutive elements, 16 bytes in one access where they fill as many.",
        caller=Caller.THREAD,
        order="none, or as ld for each access",
        effect="reads",
        operands=(Operand("ptr", Kind.POINTER, SCALARS),),
        choices=(_VECTOR_SIZE, _VECTOR_SCOPE, Choice("semantic", "sem", ("weak", "relaxed", "acquire"), _NO_RELEASE)),
        result=Result.VECTOR,
    ),
    Primitive(
        name="st_vector",
        doc="Stores consecutive elements, 16 bytes in one access where they fill as many.",
        caller=Caller.THREAD,
        order="none, or as st for each access",
        effect="writes",
        operands=(Operand("ptr", Kind.POINTER, SCALARS), Operand("vec", Kind.VECTOR)),
        choices=(_VECTOR_SCOPE, Choice("semantic", "sem", ("weak", "relaxed", "release"), _NO_ACQUIRE)),
    ),
    Primitive(
        name="multimem_st",
        doc="Stores words through a multicast address: on every rank of its team.",
        caller=Caller.THREAD,
        effect="writes on every rank of the team",
        operands=(Operand("ptr", Kind.POINTER, MULTICAST_WORDS), Operand("val", Kind.VECTOR)),
        choices=(_MULTICAST_TYPE,),
    ),
    Primitive(
        name="multimem_ld_reduce",
        doc="Sums words of all ranks of a team through a multicast address, in fp32 or in the elements' own type.",
        caller=Caller.THREAD,
        effect="reads on every rank of the team",
        operands=(Operand("ptr", Kind.POINTER, MULTICAST_WORDS),),
        choices=(_MULTICAST_TYPE, Choice("accumulator", "acc", ("f32", "own")), Choice("vec_size", "n", (1, 2, 4))),
        result=Result.VECTOR,
    ),
    Primitive(
        name="shfl",
        doc="The value that another thread of the warp holds.",
        caller=Caller.WARP,
        operands=(Operand("mask", Kind.LANES), Operand("value", Kind.SCALAR), Operand("lane", Kind.COUNT)),
        choices=(Choice("mode", "mode", ("idx", "up", "down", "bfly")),),
        result=Result.SECOND,
    ),
    Primitive(
        name="ballot",
        doc="For each thread of the warp one bit: whether its predicate holds.",
        caller=Caller.WARP,
        operands=(Operand("mask", Kind.LANES), Operand("predicate", Kind.PREDICATE)),
        result=Result.INT32,
    ),
    Primitive(
        name="syncwarp",
        doc="Barrier of the warp's threads that are in the mask.",
        caller=Caller.WARP,
        order="acquire and release among these threads",
        effect="orders",
        operands=(Operand("mask", Kind.LANES),),
    ),
    Primitive(
        name="shared_memory",
        doc="Address of memory that the block's threads share (of a simt region).",
        caller=Caller.BLOCK,
        result=Result.INT32,
        pure=True,
        internal=True,
    ),
    Primitive(
        name="shared_load",
        doc="Reads an integer, or a tile of them, from shared memory.",
        caller=Caller.THREAD,
        effect="reads",
        operands=(Operand("address", Kind.SHARED),),
        internal=True,
    ),
    Primitive(
        name="shared_store",
        doc="Writes an integer, or a tile of them, to shared memory.",
        caller=Caller.THREAD,
        effect="writes",
        operands=(Operand("address", Kind.SHARED), Operand("value", Kind.ANY)),
        internal=True,
    ),
    Primitive(
        name="tid",
        doc="Index of the calling thread in its block.",
        caller=Caller.THREAD,
        choices=(Choice("axis", "axis", (0, 1, 2)),),
        result=Result.INT32,
        pure=True,
    ),
    Primitive(
        name="fence",
        doc="Orders the calling thread's memory accesses before it with those after it.",
        caller=Caller.THREAD,
        order="acquire and release at scope",
        effect="orders",
        choices=(_SCOPE, Choice("order", "order", ("acq_rel", "sc"))),
    ),
    Primitive(
        name="syncthreads",
        doc="Barrier of the block's threads.",
        caller=Caller.BLOCK,
        order="acquire and release among the block's threads",
        effect="orders",
    ),
    Primitive(
        name="num_warps",
        doc="Number of warps of the block.",
        result=Result.CONSTEXPR,
        pure=True,
    ),
    Primitive(
        name="threads_per_warp",
        doc="Threads of a warp: 32 on NVIDIA, 64 on AMD's data-centre GPUs.",
        result=Result.CONSTEXPR,
        pure=True,
    ),
    Primitive(
        name="num_threads",
        doc="Threads of the block: num_warps * threads_per_warp.",
        result=Result.CONSTEXPR,
        pure=True,
    ),
)

_LEVEL = Choice("level", "level", ("thread", "warp", "block"))
_NBI = Choice("nbi", "nbi", (0, 1))
_SIG_OP = Choice("sig_op", "op", ("set", "add"))

_DEST = Operand("dest", Kind.POINTER)
_SOURCE = Operand("source", Kind.POINTER)
_BYTES = Operand("bytes", Kind.SIZE)
_PE = Operand("pe", Kind.RANK)
_TEAM = Operand("team", Kind.COUNT)
_SIG_ADDR = Operand("sig_addr", Kind.POINTER, WORDS)

_SHMEM_ROWS = (
    Primitive(
        name="remote_ptr",
        doc="The same symmetric object on another rank; NULL if this rank has no direct pointer to it.",
        operands=(Operand("local_ptr", Kind.POINTER), _PE),
        result=Result.SAME,
        pure=True,
    ),
    Primitive(
        name="remote_mc_ptr",
        doc="The multicast address of a symmetric object on a team; NULL where there is no multicast.",
        operands=(Operand("ptr", Kind.POINTER), _TEAM),
        result=Result.SAME,
        pure=True,
    ),
    Primitive(
        name="team_my_pe",
        doc="This rank's place in a team; -1 if it is in no team of that number.",
        operands=(_TEAM,),
        result=Result.INT32,
    ),
    Primitive(
        name="team_n_pes",
        doc="Number of ranks of a team; -1 if this rank is in no team of that number.",
        operands=(_TEAM,),
        result=Result.INT32,
    ),
    Primitive(
        name="team_translate_pe",
        doc="The place in one team of the rank with a place in another one; -1 if it has none.",
        operands=(Operand("src_team", Kind.COUNT), Operand("pe_in_src_team", Kind.RANK), Operand("dest_team", Kind.COUNT)),
        result=Result.INT32,
    ),
    Primitive(
        name="shmem_put",
        doc="Copies bytes to another rank. The source may be changed when it returns, or with nbi after a quiet.",
        caller=Caller.GROUP,
        order="none; fence, quiet and barriers order its delivery",
        effect="writes dest on pe, at the latest at the kernel's end",
        operands=(_DEST, _SOURCE, _BYTES, _PE),
        choices=(_LEVEL, _NBI),
    ),
    Primitive(
        name="shmem_get",
        doc="Copies bytes from another rank. The data is there when it returns, or with nbi after a quiet.",
        caller=Caller.GROUP,
        effect="writes dest",
        operands=(_DEST, _SOURCE, _BYTES, _PE),
        choices=(_LEVEL, _NBI),
    ),
    Primitive(
        name="shmem_put_signal",
        doc="A put, then an update of a signal word on the same rank.",
        caller=Caller.GROUP,
        order="whoever acquires the signal sees the data",
        effect="writes dest and the word on pe",
        operands=(_DEST, _SOURCE, _BYTES, _SIG_ADDR, Operand("signal", Kind.WORD, like="sig_addr"), _PE),
        choices=(_LEVEL, _NBI, _SIG_OP),
    ),
    Primitive(
        name="shmem_signal",
        doc="Sets or adds to a signal word of another rank.",
        caller=Caller.THREAD,
        order="release at system scope of the thread's own loads and stores; puts need a fence before it",
        effect="writes the word on pe",
        operands=(_SIG_ADDR, Operand("signal", Kind.WORD), _PE),
        choices=(_SIG_OP,),
    ),
    Primitive(
        name="shmem_signal_wait",
        doc="Blocks the thread until a signal word compares as asked, and returns the word.",
        caller=Caller.THREAD,
        order="acquire at system scope",
        effect="reads the word",
        operands=(_SIG_ADDR, Operand("cmp_val", Kind.WORD)),
        choices=(Choice("cmp", "cmp", ("eq", "ne", "gt", "le", "lt", "ge")),),
        result=Result.ELEMENT,
    ),
    Primitive(
        name="shmem_p",
        doc="Stores one scalar on another rank.",
        caller=Caller.THREAD,
        order="none; fence, quiet and barriers order its delivery",
        effect="writes dest on pe, at the latest at the kernel's end",
        operands=(Operand("dest", Kind.POINTER, SCALARS), Operand("value", Kind.VALUE), _PE),
    ),
    Primitive(
        name="shmem_g",
        doc="Loads one scalar from another rank.",
        caller=Caller.THREAD,
        effect="reads",
        operands=(Operand("source", Kind.POINTER, SCALARS), _PE),
        result=Result.ELEMENT,
    ),
    Primitive(
        name="shmem_barrier",
        doc="Meets the other ranks of a team; with completes=1 all earlier puts of this rank are done before.",
        caller=Caller.GROUP,
        order="acquire and release at system scope",
        effect="orders",
        operands=(_TEAM,),
        choices=(_LEVEL, Choice("completes", "completes", (0, 1))),
    ),
    Primitive(
        name="shmem_quiet",
        doc="Completes all earlier puts and gets.",
        caller=Caller.THREAD,
        order="sequentially consistent fence at system scope",
        effect="orders",
    ),
    Primitive(
        name="shmem_fence",
        doc="Delivers all earlier puts before later ones to the same rank; gets with nbi are not completed.",
        caller=Caller.THREAD,
        order="acquire and release at system scope",
        effect="orders",
    ),
    Primitive(
        name="shmem_broadcast",
        doc="Copies bytes of one rank of a team to all of them; the data is there when it returns.",
        caller=Caller.GROUP,
        order="as a barrier of the team at its end",
        effect="writes dest",
        operands=(_TEAM, _DEST, _SOURCE, _BYTES, Operand("pe_root", Kind.RANK)),
        choices=(_LEVEL,),
    ),
    Primitive(
        name="shmem_fcollect",
        doc="Concatenates the same number of bytes of each rank of a team, in team order, on all of them.",
        caller=Caller.GROUP,
        order="as a barrier of the team at its end",
        effect="writes dest",
        operands=(_TEAM, _DEST, _SOURCE, _BYTES),
        choices=(_LEVEL,),
    ),
)
"""The SHMEM names of ``language/extra/libshmem_device.py``, with NVSHMEM's meaning. Our own heap's lowering is ``shmem.py``; another
backing is one more dictionary in ``lowering.TARGETS``."""

PRIMITIVES: Mapping[str, Primitive] = {row.name: row for row in (*_ROWS, *_SHMEM_ROWS)}
SHMEM_PRIMITIVES = tuple(row.name for row in _SHMEM_ROWS)
"""Every device primitive by name."""
