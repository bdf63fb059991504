"""Blocks in which the threads of a warp, or of a block, work together: as ``ptx_memory_cases``, for one GPU.

Every thread runs the block on words of its own: ``%x`` and ``%y``, its index ``%t``; it leaves ``%o`` and the predicate ``%p``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.gpu.programs import Program
from tests.gpu.values import random_bits

THREADS = 128

BLOCK = """{{ .reg .u64 %a, %b; .reg .u32 %t, %x, %y, %o; .reg .pred %p, %q;
mov.u32 %t, %tid.x; mad.wide.u32 %a, %t, 4, $1; mad.wide.u32 %b, %t, 4, $2; ld.global.u32 %x, [%a]; ld.global.u32 %y, [%a+512];
mov.u32 %o, 0; setp.ne.u32 %p, 0, 0;
{text}
st.global.u32 [%b], %o; selp.u32 %o, 1, 0, %p; st.global.u32 [%b+512], %o; mov.u32 $0, 0; }}"""

SHUFFLES = [
    f"shfl.sync.{mode}.b32 %o|%p, %x, {amount}, {clamp}, 0xffffffff;"
    for mode in ("up", "down", "bfly", "idx")
    for amount in ("1", "7", "31", "%y")
    for clamp in ("0", "0x1f", "0x181f", "0x1c03", "%y")
]

HALVES = "setp.lt.u32 %q, %t, 64; @%q {first} @!%q {second}"

WARPS = [
    *SHUFFLES,
    "and.b32 %y, %t, 15; setp.eq.u32 %q, %y, 3; @%q shfl.sync.idx.b32 %o|%p, %x, 19, 31, 0x80008;",
    "setp.lt.u32 %q, %t, 40; vote.sync.all.pred %p, %q, -1;",
    "setp.lt.s32 %q, %x, 0; vote.sync.any.pred %p, !%q, -1;",
    "setp.gt.u32 %q, %t, 40; vote.sync.uni.pred %p, %q, 0xffffffff;",
    "setp.lt.s32 %q, %x, 0; vote.sync.ballot.b32 %o, %q, 0xffffffff;",
    "setp.lt.s32 %q, %x, 0; vote.sync.ballot.b32 %o, !%q, 0xffffffff;",
    "and.b32 %x, %x, 3; match.any.sync.b32 %o, %x, 0xffffffff;",
    "and.b32 %x, %t, 64; match.all.sync.b32 %o|%p, %x, 0xffffffff;",
    "shr.u32 %x, %t, 6; match.all.sync.b32 %o|%p, %x, 0xffffffff;",
    "{ .reg .b64 %d; and.b32 %x, %x, 1; mov.b64 %d, {%x, %x}; match.any.sync.b64 %o, %d, 0xffffffff; }",
    *(f"redux.sync.{name}.{kind} %o, %x, 0xffffffff;" for name in ("add", "min", "max") for kind in ("u32", "s32")),
    *(f"or.b32 %x, %x, 0x700; redux.sync.{name}.b32 %o, %x, 0xffffffff;" for name in ("and", "or", "xor")),
    "and.b32 %y, %t, 1; setp.eq.u32 %q, %y, 0; @%q redux.sync.add.u32 %o, %x, 0x55555555;",
    "elect.sync %o|%p, 0xffffffff;",
    "and.b32 %y, %t, 31; setp.ge.u32 %q, %y, 9; @%q elect.sync %o|%p, 0xfffffe00;",
    # A mask for each half of a warp, from a register.
    "{ .reg .u32 %m; and.b32 %m, %t, 16; shl.b32 %m, 0xffff, %m; shfl.sync.down.b32 %o|%p, %x, 3, 0x1f, %m; }",
    # Sums over a warp, as a reduction is written.
    "{ .reg .u32 %s; "
    + " ".join(f"shfl.sync.bfly.b32 %s, %x, {step}, 31, -1; add.u32 %x, %x, %s;" for step in (16, 8, 4, 2, 1))
    + " mov.u32 %o, %x; }",  # fmt: skip
    HALVES.format(first="bar.sync 1, 64;", second="bar.sync 2, 64;") + " mov.u32 %o, %t;",
    "setp.lt.u32 %q, %t, 64; @%q bar.arrive 3, 128; @!%q bar.sync 3, 128; mov.u32 %o, %t;",
    "setp.lt.s32 %q, %x, 0; bar.red.popc.u32 %o, 0, %q;",
    "setp.gt.u32 %q, %t, 127; barrier.cta.red.and.pred %p, 1, 128, !%q;",
    "setp.eq.u32 %q, %t, 77; bar.red.or.pred %p, 0, %q;",
]


_WORD = ".shared .align 16 .b8 buffer[512]; .reg .u32 %s, %n; mov.u32 %s, buffer; shl.b32 %n, %t, 2; add.u32 %s, %s, %n; "
"""A word of shared memory for each thread, at ``%s``."""

SHARED = [
    # Rotate by one thread.
    _WORD + "st.shared.u32 [%s], %x; bar.sync 0; add.u32 %n, %n, 4; and.b32 %n, %n, 508; mov.u32 %s, buffer; add.u32 %s, %s, %n;"
    " ld.shared.u32 %o, [%s];",
    _WORD + "st.shared.v2.b32 [buffer], {1, 2}; bar.sync 0; ld.shared.u32 %o, [buffer+4];",
    "{ .shared .align 8 .b64 pair[128]; .reg .u64 %w; .reg .u32 %s; mov.u32 %s, pair; mad.lo.u32 %s, %t, 8, %s; mov.b64 %w, {%x, %y};"
    " st.shared.b64 [%s], %w; ld.volatile.shared::cta.u32 %o, [%s+4]; }",
    "{ .shared .align 16 .b8 quad[2048]; .reg .u64 %w; .reg .u32 %z<4>; mov.u64 %w, quad; mad.wide.u32 %w, %t, 16, %w;"
    " st.shared.v4.u32 [%w], {%x, %y, %x, %t}; ld.shared.v4.u32 {%z0, %z1, %z2, %z3}, [%w]; xor.b32 %o, %z1, %z3; }",
    "{ .shared .align 4 .b8 octets[128]; .reg .u32 %s, %n; .reg .b16 %h; mov.u32 %s, octets; add.u32 %s, %s, %t; cvt.u16.u32 %h, %x;"
    " st.shared.u8 [%s], %h; bar.sync 0; and.b32 %n, %t, 124; mov.u32 %s, octets; add.u32 %s, %s, %n; ld.shared.b32 %o, [%s]; }",
    # Sums of all threads, of a warp's, and a maximum.
    "{ .shared .u32 sum; setp.eq.u32 %q, %t, 0; @%q st.shared.u32 [sum], 0; bar.sync 0; red.shared.add.u32 [sum], %x; bar.sync 0;"
    " ld.shared.u32 %o, [sum]; }",
    "{ .shared .align 4 .b32 most[4]; .reg .u32 %s, %w; mov.u32 %s, most; shr.u32 %w, %t, 5; mad.lo.u32 %s, %w, 4, %s;"
    " st.shared.u32 [%s], 0; bar.warp.sync -1; atom.shared.max.u32 %o, [%s], %x; bar.warp.sync -1; ld.shared.u32 %o, [%s]; }",
    "{ .shared .u32 count; setp.eq.u32 %q, %t, 0; @%q st.shared.u32 [count], 127; bar.sync 0; atom.shared.cas.b32 %y, [count], %t, 5;"
    # Which threads come before thread 127 is open, and so is what they see.
    " bar.sync 0; ld.shared.u32 %o, [count]; setp.eq.u32 %q, %t, 127; setp.eq.and.u32 %p, %y, 127, %q; mov.u32 %y, 0; }",
    "{ .shared .u32 lower; .shared .align 64 .u32 upper[2]; st.shared.u32 [lower], 1; st.shared.u32 [upper+4], 2; bar.sync 0;"
    " .reg .u32 %m; ld.shared.u32 %o, [lower]; ld.shared.u32 %m, [upper+4]; add.u32 %o, %o, %m; mov.u32 %m, upper; and.b32 %m, %m, 63;"
    " add.u32 %o, %o, %m; }",
]


def shared_programs() -> Iterator[Program]:
    """Variables in shared memory: loads, stores and atomics, of every width, between threads."""
    for number, text in enumerate(SHARED):
        yield program(f"shared.{number}", text, 40 + number)


_MBARRIER = "{{ .shared .align 8 .b64 bar; .reg .b64 %st, %src; setp.eq.u32 %q, %t, 0; @%q mbarrier.init.shared::cta.b64 [bar], {count};" \
    " @%q fence.mbarrier_init.release.cluster; bar.sync 0; "  # fmt: skip
_UNTIL = (
    "{{ .reg .u32 %turn; .reg .pred %again; mov.u32 %turn, 0; {label}: mbarrier.try_wait{more}.shared::cta.b64 %p, [bar], {phase};"
    " add.u32 %turn, %turn, 1; setp.lt.u32 %again, %turn, 100000; @%p setp.ne.u32 %again, 0, 0; @%again bra {label}; }} "
)
"""A wait that ends also if the phase does not: then ``%p`` is false."""

_BUFFER = ".shared .align 128 .b8 buffer[512]; .reg .u32 %s; mov.u32 %s, buffer; mad.lo.u32 %s, %t, 4, %s; "

MBARRIERS = [
    _MBARRIER.format(count=128)
    + "mbarrier.arrive.shared::cta.b64 %st, [bar]; "
    + _UNTIL.format(label="again", more="", phase="%st")
    + "mov.u32 %o, %t; }",  # fmt: skip
    # Two phases, by parity.
    _MBARRIER.format(count=128)
    + "mbarrier.arrive.release.cta.shared::cta.b64 _, [bar]; "
    + _UNTIL.format(label="first", more=".parity", phase="0")
    + "mbarrier.arrive.shared::cta.b64 %st, [bar]; "
    + _UNTIL.format(label="second", more=".parity", phase="1")
    + "add.u32 %o, %t, 1; }",
    # One that is not complete, then is.
    _MBARRIER.format(count=128) + "mbarrier.test_wait.parity.shared::cta.b64 %q, [bar], 0; selp.u32 %o, 1, 2, %q; bar.sync 0;"
    " mbarrier.arrive.shared::cta.b64 %st, [bar]; bar.sync 0; mbarrier.test_wait.shared::cta.b64 %p, [bar], %st; }",
    # Several arrivals of one thread, and one that leaves.
    _MBARRIER.format(count=4)
    + "@%q mbarrier.arrive.noComplete.shared::cta.b64 %st, [bar], 2; @%q mbarrier.arrive.shared::cta.b64 %st, [bar];"
    " @%q mbarrier.arrive_drop.shared::cta.b64 %st, [bar]; bar.sync 0; "
    + _UNTIL.format(label="again", more=".parity", phase="0")
    + "bar.sync 0; @%q mbarrier.arrive.noComplete.shared::cta.b64 %st, [bar], 2; @%q mbarrier.arrive.shared::cta.b64 %st, [bar]; "
    + _UNTIL.format(label="more", more=".parity", phase="1")
    + "add.u32 %o, %t, 3; }",
    # A bulk copy into shared memory.
    _MBARRIER.format(count=1)
    + _BUFFER
    + "@%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 512; @%q cp.async.bulk.shared::cluster.global"
    ".mbarrier::complete_tx::bytes [buffer], [$1], 512, [bar]; "
    + _UNTIL.format(label="again", more=".parity", phase="0")
    + "ld.shared.u32 %o, [%s]; }",
    # Two of them, of two threads, in the other order.
    _MBARRIER.format(count=2)
    + _BUFFER
    + "setp.lt.u32 %q, %t, 2; xor.b32 %y, %t, 1; mad.wide.u32 %src, %y, 256, $1; mul.lo.u32 %y, %t, 256;"
    " .reg .u32 %dst; mov.u32 %dst, buffer; add.u32 %dst, %dst, %y;"
    " @%q mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 256;"
    " @%q cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%dst], [%src], 256, [bar]; "
    + _UNTIL.format(label="again", more=".parity", phase="0")
    + "ld.shared.u32 %o, [%s]; }",
    # A bulk copy out of shared memory; what it leaves is read back.
    "{ " + _BUFFER + "setp.eq.u32 %q, %t, 0; st.shared.u32 [%s], %x; fence.proxy.async.shared::cta; bar.sync 0;"
    " @%q cp.async.bulk.global.shared::cta.bulk_group [$2], [buffer], 512; @%q cp.async.bulk.commit_group; @%q cp.async.bulk.wait_group 0;"
    " bar.sync 0; fence.proxy.async; ld.volatile.global.u32 %o, [%b]; not.b32 %o, %o; bar.sync 0; }",
    "{ .reg .b64 %how; createpolicy.fractional.L2::evict_last.b64 %how, 1.0; ld.global.L2::cache_hint.u32 %o, [%a+4], %how; }",
]


def mbarrier_programs() -> Iterator[Program]:
    """mbarriers, by state and by parity, and bulk copies."""
    for number, text in enumerate(MBARRIERS):
        yield program(f"mbarriers.{number}", text, 60 + number)


def words(seed: int, count: int) -> np.ndarray:
    """Random words."""
    return random_bits(2 * count, seed).view(np.int64)[:count].astype(np.int32)


def program(name: str, text: str, seed: int = 3) -> Program:
    """The program of one text that uses the registers above."""
    block = BLOCK.format(text=text)
    source = (
        "@triton.jit\ndef kernel(source, out):\n"
        f"    tl.inline_asm_elementwise({block!r}, '=r,l,l', [source, out], dtype=tl.int32, is_pure=False, pack=1)\n"
    )
    inputs, outputs = {"source": words(seed, 2 * THREADS)}, {"out": np.zeros(2 * THREADS, np.int32)}
    return Program(name, source, inputs, outputs, labels={"out": text})


def warp_programs() -> Iterator[Program]:
    """Shuffles, votes, matches, sums of a warp, elections, and barriers of some threads."""
    for number, text in enumerate(WARPS):
        yield program(f"warps.{number}", text, 3 + number)


FAMILIES = {"warps": warp_programs, "shared": shared_programs, "mbarriers": mbarrier_programs}
