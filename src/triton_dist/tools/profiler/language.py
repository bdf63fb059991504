"""What kernels record with. No ``from __future__ import annotations`` here: Triton looks at what the annotations of a class are."""

import triton
import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.language import atomic_add, st, tid
from triton_dist.language.extra.language_extra import smid
from triton_dist.sim.ptx.special import RECORD_CLOCK

from . import layout

_CAPACITY = tl.constexpr(layout.CAPACITY)
_TAKEN = tl.constexpr(layout.TAKEN)
_DROPPED = tl.constexpr(layout.DROPPED)
_HEADER = tl.constexpr(layout.HEADER)
_CHUNK = tl.constexpr(layout.CHUNK)
_START, _END = tl.constexpr(layout.START), tl.constexpr(layout.END)
_WAIT, _NOTIFY, _WORD = tl.constexpr(layout.WAIT), tl.constexpr(layout.NOTIFY), tl.constexpr(layout.WORD)
_TASK_SHIFT = tl.constexpr(layout.TASK_SHIFT)
_BLOCK_SHIFT, _SM_SHIFT, _GROUP_SHIFT = tl.constexpr(layout.BLOCK_SHIFT), tl.constexpr(layout.SM_SHIFT), tl.constexpr(layout.GROUP_SHIFT)
_OPERATION_SHIFT, _ARGUMENT_SHIFT = tl.constexpr(layout.OPERATION_SHIFT), tl.constexpr(layout.ARGUMENT_SHIFT)
_WIDE = tl.constexpr(layout.WIDE)
_GROUP_MAX = tl.constexpr(layout.GROUP_MAX)
_ARGUMENT_MAX = tl.constexpr(layout.ARGUMENT_MAX)
_COMPARISONS, _OPERATIONS = tl.constexpr(layout.COMPARISONS), tl.constexpr(layout.OPERATIONS)
_RECORD_CLOCK = tl.constexpr(RECORD_CLOCK)
_AMD_CLOCK = tl.constexpr("s_memrealtime $0\ns_waitcnt lgkmcnt(0)")
_NO_ROOM = tl.constexpr(-1)
_EQUAL, _SET = tl.constexpr("eq"), tl.constexpr("set")


@tl.core.builtin
def for_amd(_semantic=None):
    """Whether the kernel is compiled for an AMD GPU; the target is part of Triton's cache key."""
    return tl.constexpr(getattr(_semantic.builder.options, "backend_name", "") == "hip")


@triton.constexpr_function
def _is_constant(value):
    """Whether a value is known when the kernel is compiled."""
    return not isinstance(value, tl.tensor)


@triton.constexpr_function
def _may_lead(leader):
    """Whether some thread may be the leader."""
    return not _is_constant(leader) or bool(leader)


@triton.constexpr_function
def _field(value):
    """A value as a field of an aggregate."""
    return tl.constexpr(value) if _is_constant(value) else value


@triton.constexpr_function
def _number(known, what, name):
    """The place of a name among those that are known. Raises PrimitiveArgumentError."""
    if name not in known:
        raise PrimitiveArgumentError(f"profiler: {what}={name!r} is not known; use one of {', '.join(known)}")
    return known.index(name)


@triton.constexpr_function
def _check_group(group):
    """Raises PrimitiveArgumentError for a constant that no record has room for."""
    if not (isinstance(group, int) and 0 <= group <= layout.GROUP_MAX):
        raise PrimitiveArgumentError(f"profiler: group_id={group!r} must be a whole number from 0 to {layout.GROUP_MAX}")


@triton.constexpr_function
def _check_buffer(buffer):
    """Raises PrimitiveArgumentError for what is no address: None, or a number."""
    constant = not isinstance(buffer, tl.tensor)
    if constant or not buffer.dtype.is_ptr() and buffer.dtype != tl.int64 and buffer.dtype != tl.uint64:
        shown = buffer if constant else buffer.dtype
        raise PrimitiveArgumentError(f"profiler: profiler_buffer={shown} is no buffer; pass what alloc_profiler_buffer returned")


@triton.jit
def now():
    """Nanoseconds, uint64. The clock of AMD GPUs counts at 100 MHz."""
    if for_amd():
        time = 10 * tl.inline_asm_elementwise(_AMD_CLOCK, "=s", [], dtype=tl.uint64, is_pure=False, pack=1)
    else:
        time = tl.inline_asm_elementwise(_RECORD_CLOCK, "=l", [], dtype=tl.uint64, is_pure=False, pack=1)
    return time


@triton.jit
def _multiprocessor():
    return tl.full((), 0, tl.uint64) if for_amd() else smid().to(tl.uint64)


@triton.jit
def _count(word, leader, BY_BLOCK: tl.constexpr):
    """Adds one to a word of the header; returns what was there (to the leader)."""
    one = tl.full((), 1, tl.uint64)
    before = tl.full((), 0, tl.uint64)
    if BY_BLOCK:
        before = tl.atomic_add(word, one, sem="relaxed", scope="gpu")
    else:
        if leader:
            before = atomic_add(word, one, "gpu", "relaxed")
    return before


@triton.jit
def _write(slot, first, second, leader, BY_BLOCK: tl.constexpr):
    if BY_BLOCK:
        tl.store(slot, first)
        tl.store(slot + 1, second)
    else:
        if leader:
            st(slot, first, "gpu", "relaxed")
            st(slot + 1, second, "gpu", "relaxed")


@triton.jit
def _slot(buffer, cursor):
    return buffer + _HEADER + 2 * cursor.to(tl.int64)


@triton.jit
def _take_chunk(buffer, cursor, group, leader, BY_BLOCK: tl.constexpr):
    """The first slot for a record in a new chunk, which goes on from the one before ``cursor`` (0: from none), or _NO_ROOM."""
    number = _count(buffer + _TAKEN, leader, BY_BLOCK)
    first = tl.full((), _NO_ROOM, tl.int32)
    if number < tl.load(buffer + _CAPACITY):
        head = number.to(tl.int32) * _CHUNK
        block = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
        thread = tl.full((), 0, tl.int32) if BY_BLOCK else tid(0)
        before = (thread.to(tl.uint64) << 32) | (cursor // _CHUNK).to(tl.uint64)
        whose = (group.to(tl.uint64) << _GROUP_SHIFT) | (_multiprocessor() << _SM_SHIFT) | (block.to(tl.uint64) << _BLOCK_SHIFT) | 1
        _write(_slot(buffer, head), before, whose, leader, BY_BLOCK)
        first = head + 1
    return first


@triton.jit
def _append(profiler, first, second):
    """Writes a record, or counts it as dropped; returns where the next one goes."""
    BY_BLOCK: tl.constexpr = _is_constant(profiler.leader)
    cursor = profiler.cursor
    if cursor % _CHUNK == 0:
        cursor = _take_chunk(profiler.buffer, cursor, profiler.group, profiler.leader, BY_BLOCK)
    if cursor == _NO_ROOM:
        _count(profiler.buffer + _DROPPED, profiler.leader, BY_BLOCK)
    else:
        _write(_slot(profiler.buffer, cursor), first, second, profiler.leader, BY_BLOCK)
        cursor += 1
    return Profiler(profiler.buffer, cursor, profiler.group, profiler.leader, profiler.ENABLE_PROFILING)


@triton.jit
def _with_word(profiler, KIND: tl.constexpr, task_type, ptr, value, OPERATION: tl.constexpr, argument):
    """Writes the two slots of a wait or a notify."""
    WIDE: tl.constexpr = _WIDE if ptr.dtype.element_ty.primitive_bitwidth == 64 else 0
    time = now()
    profiler = _append(profiler, time, (tl.cast(task_type, tl.uint64) << _TASK_SHIFT) | KIND)
    low = tl.cast(value, tl.int64).to(tl.uint64) & 0xFFFFFFFF
    extra = tl.minimum(tl.cast(argument, tl.int32), _ARGUMENT_MAX).to(tl.uint64)
    second = (extra << _ARGUMENT_SHIFT) | (tl.full((), OPERATION + WIDE, tl.uint64) << _OPERATION_SHIFT) | (low << _TASK_SHIFT) | _WORD
    return _append(profiler, ptr.to(tl.uint64), second)


@tl.core._aggregate
class Profiler:
    """Records into a profiler buffer what a block does and when. Each method returns the profiler that the next record is made with.

    ``profiler = Profiler.create(buffer, group_id=0)`` once a program, then ``profiler = profiler.record(True, TASK)`` where a task begins
    and ``profiler = profiler.record(False, TASK)`` where it ends. With ``ENABLE_PROFILING=False`` nothing of it is left in the kernel,
    and the buffer is not looked at.
    """

    buffer: tl.core.base_value
    cursor: tl.core.base_value
    group: tl.core.base_value
    leader: tl.core.base_value
    ENABLE_PROFILING: tl.constexpr

    @triton.constexpr_function
    def __init__(self, buffer, cursor, group, leader, ENABLE_PROFILING):
        self.buffer = _field(buffer)
        self.cursor = _field(cursor)
        self.group = _field(group)
        self.leader = _field(leader)
        self.ENABLE_PROFILING = tl.constexpr(ENABLE_PROFILING)

    @triton.jit
    def create(profiler_buffer, group_id, num_groups=1, is_leader=True, num_blocks=None, ENABLE_PROFILING: tl.constexpr = True):
        """A profiler of the calling block, or of one of several ``group_id`` (0 to 4095) in it that record side by side.

        profiler_buffer: of ``alloc_profiler_buffer``. group_id: another constant is a PrimitiveArgumentError, another value of run time
        is found where kernels are compiled with ``debug=True``.
        is_leader: by default all threads of the block come to every call and one of them records. Where only some threads come, a condition
        that holds for exactly one of those, such as ``tid(0) == 0``. With the constant False nothing is recorded.
        num_groups, num_blocks: not needed; they are taken since Triton-distributed's has them.
        """
        if ENABLE_PROFILING and _may_lead(is_leader):
            _check_buffer(profiler_buffer)
            if _is_constant(group_id):
                _check_group(group_id)
            buffer = tl.cast(profiler_buffer, tl.pointer_type(tl.uint64))
            group = tl.cast(group_id, tl.int32)
            if not _is_constant(group_id):
                tl.device_assert((group >= 0) & (group <= _GROUP_MAX), "profiler: group_id must be from 0 to 4095")
            cursor = _take_chunk(buffer, tl.full((), 0, tl.int32), group, is_leader, _is_constant(is_leader))
            made = Profiler(buffer, cursor, group, is_leader, ENABLE_PROFILING)
        else:
            made = Profiler(0, 0, 0, False, False)
        return made

    @triton.jit
    def record(self, is_start, task_type):
        """A task begins (``is_start``) or ends now. ``task_type``: index into the names that the trace is written with, or any number."""
        after = self
        if self.ENABLE_PROFILING:
            time = now()
            kind = tl.where(tl.cast(is_start, tl.int1), _START, _END).to(tl.uint64)
            after = _append(self, time, (tl.cast(task_type, tl.uint64) << _TASK_SHIFT) | kind)
        return after

    @triton.jit
    def record_wait(self, task_type, ptr, count=1, value=1, cmp: tl.constexpr = _EQUAL):
        """A task begins that waits for ``count`` words from ``ptr`` on, as ``dl.wait(ptr, count, ..., waitValue=value, cmp=cmp)`` does.

        It ends by ``record(False, task_type)``. The trace has an arrow from the notify that ended it.
        """
        after = self
        if self.ENABLE_PROFILING:
            after = _with_word(self, _WAIT, task_type, ptr, value, _number(_COMPARISONS, "cmp", cmp), count)
        return after

    @triton.jit
    def record_notify(self, task_type, ptr, rank, signal=1, sig_op: tl.constexpr = _SET):
        """Stands right before ``dl.notify(ptr, rank, signal, sig_op)`` and takes the same: a point of the trace, where arrows begin."""
        after = self
        if self.ENABLE_PROFILING:
            after = _with_word(self, _NOTIFY, task_type, ptr, signal, _number(_OPERATIONS, "sig_op", sig_op), rank)
        return after
