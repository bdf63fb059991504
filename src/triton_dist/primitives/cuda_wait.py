"""The assembly of ``wait`` on NVIDIA GPUs: the poll, and what a thread does that has polled in vain for some milliseconds.

The poll is a load, a compare and a branch. After ``POLLS_BETWEEN_LOOKS`` failures the thread looks at the wait board, whose
address stands in the context page: it goes on polling if there is none. It falls through if the abort word is set. If the bound
has passed, one thread of the warp writes a record, then the abort word, in this order for the host. If somebody asks for a
report, one thread of the warp writes a record and all go on. Nothing of this is compiled in or out: it is switched at run time.

Loads and stores of the board name a scope, so that they go to memory; the record's slot comes from a counter in device memory,
since atomics on host memory are not to be had on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from triton_dist.runtime import context_layout
from triton_dist.runtime import wait_layout as board

_AGAIN = {
    "eq": "setp.ne.b{bits} %again, %seen, ${value};",
    "ne": "setp.eq.b{bits} %again, %seen, ${value};",
    "gt": "sub.s{bits} %distance, %seen, ${value}; setp.le.s{bits} %again, %distance, 0;",
    "ge": "sub.s{bits} %distance, %seen, ${value}; setp.lt.s{bits} %again, %distance, 0;",
    "lt": "sub.s{bits} %distance, %seen, ${value}; setp.ge.s{bits} %again, %distance, 0;",
    "le": "sub.s{bits} %distance, %seen, ${value}; setp.gt.s{bits} %again, %distance, 0;",
}
"""Sets %again while the compare does not hold. Ordered compares look at the sign of the difference, which survives wrap-around."""

_REGISTERS = """.reg .pred %again; .reg .b{bits} %seen; .reg .b{bits} %distance;
.reg .pred %look; .reg .pred %over; .reg .b32 %left; .reg .b32 %told; .reg .b32 %since;
.reg .b64 %board; .reg .b64 %wide; .reg .b32 %now; .reg .b32 %request; .reg .b32 %slot;"""
"""Few, since a warp-specialised partition that only loads has 24 registers a thread."""

_START = "mov.u32 %left, {polls}; mov.u32 %told, 0; mov.u32 %since, 0;"

_POLL = """POLL${{:uid}}:
ld.{semantic}.{scope}.global.b{bits} %seen, [{address}];
{again}
@!%again bra {seen};
sub.s32 %left, %left, 1; setp.ne.s32 %look, %left, 0;
@%look bra POLL${{:uid}};
"""

_LOOK = """mov.u32 %left, {polls};
mov.u64 %board, {board_word:#x}; ld.relaxed.gpu.global.b64 %board, [%board];
setp.eq.s64 %look, %board, 0;
@%look bra POLL${{:uid}};
ld.relaxed.sys.global.b32 %slot, [%board+{abort}];
setp.ne.s32 %look, %slot, 0;
@%look bra DONE${{:uid}};
mov.u64 %wide, %globaltimer; shr.u64 %wide, %wide, {tick_bits}; cvt.u32.u64 %now, %wide;
setp.eq.s32 %look, %since, 0;
@%look mov.u32 %since, %now;
sub.s32 %now, %now, %since;
ld.relaxed.sys.global.b32 %slot, [%board+{bound}];
sub.s32 %slot, %slot, 1; setp.gt.u32 %over, %now, %slot;
ld.relaxed.sys.global.b32 %request, [%board+{request}];
setp.ne.s32 %look, %request, %told; mov.u32 %told, %request;
setp.ne.and.s32 %look, %request, 0, %look; or.pred %look, %look, %over;
@!%look bra POLL${{:uid}};
"""
"""A bound of 0 becomes the largest number when 1 is taken from it, and is never passed."""

_ELECT = """activemask.b32 %request; mov.u32 %slot, %lanemask_lt; and.b32 %slot, %slot, %request; setp.ne.s32 %look, %slot, 0;
@%look bra POLL${{:uid}};
mov.u32 %request, %told;
@%over mov.u32 %request, {timed_out:#x};
"""
"""The others of the warp poll on, and see the abort word when they look again."""

_RECORD = """mov.u64 %wide, {counter_word:#x}; atom.relaxed.gpu.global.add.u32 %slot, [%wide], 1;
and.b32 %slot, %slot, {last_slot}; mad.wide.u32 %board, %slot, {record_bytes}, %board;
st.relaxed.sys.global.b32 [%board+{elapsed}], %now;
mov.b64 %wide, {hash:#x};
st.relaxed.sys.global.b64 [%board+{hash_offset}], %wide;
st.relaxed.sys.global.b64 [%board+{address_offset}], {address};
st.relaxed.sys.global.b{bits} [%board+{expected}], ${value};
st.relaxed.sys.global.b{bits} [%board+{seen_offset}], %seen;
{upper}mov.u32 %slot, ${{:uid}}; st.relaxed.sys.global.b32 [%board+{place}], %slot;
mov.u32 %slot, %ctaid.x; st.relaxed.sys.global.b32 [%board+{place}+4], %slot;
mov.u32 %slot, %ctaid.y; st.relaxed.sys.global.b32 [%board+{place}+8], %slot;
mov.u32 %slot, %ctaid.z; st.relaxed.sys.global.b32 [%board+{place}+12], %slot;
mov.u32 %slot, {kind}; st.relaxed.sys.global.b32 [%board+{kind_offset}], %slot;
st.release.sys.global.b32 [%board+{stamp}], %request;
@!%over bra POLL${{:uid}};
mov.u64 %board, {board_word:#x}; ld.relaxed.gpu.global.b64 %board, [%board];
mov.u32 %slot, {abort_value}; st.release.sys.global.b32 [%board+{abort}], %slot;
"""

_UPPER_HALVES = (
    "mov.u32 %slot, 0; st.relaxed.sys.global.b32 [%board+{expected}+4], %slot; st.relaxed.sys.global.b32 [%board+{seen}+4], %slot;\n"
)

_ONE_WORD = (
    "{{\n"
    + _REGISTERS
    + "\n{marker} ${{:uid}}\n"
    + _START
    + "\n"
    + _POLL
    + _LOOK
    + _ELECT
    + _RECORD
    + "DONE${{:uid}}:\n{after}\n{result}\n}}"
)

_MANY_WORDS = (
    "{{\n"
    + _REGISTERS
    + """
.reg .pred %done; .reg .b32 %index; .reg .b64 %address;
{marker} ${{:uid}}
mov.u32 %index, %laneid;
mad.wide.u32 %address, %index, {bytes}, $1;
NEXT${{:uid}}:
setp.ge.s32 %done, %index, $2;
@%done bra DONE${{:uid}};
"""
    + _START
    + "\n"
    + _POLL
    + _LOOK
    + _ELECT
    + _RECORD
    + """bra DONE${{:uid}};
SEEN${{:uid}}:
add.s32 %index, %index, 32;
add.s64 %address, %address, {stride};
bra NEXT${{:uid}};
DONE${{:uid}}:
bar.warp.sync 0xffffffff;
{after}
mov.u32 $0, 0;
}}"""
)


def wait_assembly(
    *, bits: int, single: bool, semantic: str, scope: str, cmp: str, kernel: int, after: str, gives_word: bool = False
) -> str:
    """The text of one wait. Operands: the pointer, the number of words unless ``single``, the value of ``bits`` bits.

    kernel: the number of the kernel (``kernel_hash``). after: instructions that follow the last word's acquire.
    gives_word: give the word that was seen, of a ``single`` one, instead of 0.
    """
    value = 2 if single else 3
    return (_ONE_WORD if single else _MANY_WORDS).format(
        bytes=bits // 8,
        stride=32 * bits // 8,
        semantic=semantic,
        scope=scope,
        again=_AGAIN[cmp].format(bits=bits, value=value),
        seen=f"{'DONE' if single else 'SEEN'}${{:uid}}",
        after=after,
        result=f"mov.b{bits} $0, %seen;" if gives_word else "mov.u32 $0, 0;",
        **_facts(bits, cmp, kernel, value, "$1" if single else "%address"),
    )


def flagged_wait_assembly(*, ranks: Sequence[int], distance: int, kernel: int) -> str:
    """The text of one thread's wait for the unit of each of ``ranks``: 16 bytes, two words of 4 bytes of data and a flag of 4 bytes behind.

    A unit is there when both of its words carry the flag. All units are loaded at each poll, so that their latencies overlap. Results: the
    8 bytes of data of each rank, 0 for one that is not waited for. Operands: the address of the unit of rank 0 (that of rank r is
    ``r * distance`` bytes on), the flag, a rank that is not waited for, and whether the thread waits at all. Each word is read as one
    (b64), relaxed at system scope: what is in it came with its flag, and nothing else is ordered.
    """
    unit, flag, own, waits = (f"${len(ranks) + number}" for number in range(4))
    lines = ["{{", _REGISTERS, ".reg .pred %on; .reg .pred %bad; .reg .b64 %address;"]
    lines += [".reg .b32 %data; .reg .b32 %flag; .reg .b32 %more; .reg .b32 %other;"]
    lines += [f".reg .pred %on{rank}; .reg .b64 %first{rank}; .reg .b64 %second{rank};" for rank in ranks]
    lines += ["{marker} ${{:uid}}", f"setp.ne.s32 %on, {waits}, 0;"]
    lines += [f"mov.u64 %first{rank}, 0; mov.u64 %second{rank}, 0; setp.ne.and.s32 %on{rank}, {own}, {rank}, %on;" for rank in ranks]
    lines += [_START, "POLL${{:uid}}:", "setp.ne.s32 %again, 0, 0;"]
    lines += [f"@%on{rank} ld.relaxed.sys.global.v2.b64 {{{{%first{rank}, %second{rank}}}}}, [{unit}+{rank * distance}];" for rank in ranks]
    for rank in ranks:
        lines += [f"mov.b64 {{{{%data, %flag}}}}, %first{rank}; mov.b64 {{{{%more, %other}}}}, %second{rank};"]
        lines += [f"setp.ne.s32 %bad, %flag, {flag}; setp.ne.or.s32 %bad, %other, {flag}, %bad;"]
        lines += [f"and.pred %bad, %bad, %on{rank}; or.pred %again, %again, %bad;"]
    lines += ["@!%again bra DONE${{:uid}};", "sub.s32 %left, %left, 1; setp.ne.s32 %look, %left, 0;", "@%look bra POLL${{:uid}};"]
    lines += [_LOOK, _ELECT, f"add.s64 %address, {unit}, 4; mov.u32 %seen, {flag};"]
    for rank in ranks:  # the record is of the last word that is not there
        for word, offset in ((f"%first{rank}", 4), (f"%second{rank}", 12)):
            lines += [f"mov.b64 {{{{%data, %flag}}}}, {word}; setp.ne.and.s32 %bad, %flag, {flag}, %on{rank};"]
            lines += [f"@%bad mov.u32 %seen, %flag; @%bad add.s64 %address, {unit}, {rank * distance + offset};"]
    lines += [_RECORD, "DONE${{:uid}}:"]
    for number, rank in enumerate(ranks):
        lines += [f"mov.b64 {{{{%data, %flag}}}}, %first{rank}; mov.b64 {{{{%more, %other}}}}, %second{rank};"]
        lines += [f"mov.b64 ${number}, {{{{%data, %more}}}};"]
    text = "\n".join([*lines, "}}"])
    return text.format(**_facts(32, "eq", kernel, int(flag[1:]), "%address"))


def _facts(bits: int, cmp: str, kernel: int, value: int, address: str) -> dict[str, object]:
    """What the texts above are filled with. value: number of the operand that is waited for. address: of the word that a record names."""
    upper = (
        "" if bits == 64 else _UPPER_HALVES.format(expected=board.RECORDS + board.RECORD_EXPECTED, seen=board.RECORDS + board.RECORD_SEEN)
    )
    return {
        "bits": bits,
        "value": value,
        "address": address,
        "marker": f"{board.MARKER} {kernel:016x}",
        "hash": kernel,
        "kind": bits | board.COMPARISONS.index(cmp) << 8,
        "polls": board.POLLS_BETWEEN_LOOKS,
        "board_word": context_layout.word_address(context_layout.WAIT_BOARD),
        "counter_word": context_layout.word_address(context_layout.RECORD_COUNTER),
        "tick_bits": board.TICK_BITS,
        "bound": board.BOUND,
        "abort": board.ABORT,
        "request": board.REQUEST,
        "abort_value": board.TIMED_OUT,
        "timed_out": board.STAMP_TIMED_OUT,
        "last_slot": board.RECORD_SLOTS - 1,
        "record_bytes": board.RECORD_BYTES,
        "hash_offset": board.RECORDS + board.RECORD_HASH,
        "address_offset": board.RECORDS + board.RECORD_ADDRESS,
        "expected": board.RECORDS + board.RECORD_EXPECTED,
        "seen_offset": board.RECORDS + board.RECORD_SEEN,
        "place": board.RECORDS + board.RECORD_PLACE,
        "elapsed": board.RECORDS + board.RECORD_ELAPSED,
        "kind_offset": board.RECORDS + board.RECORD_KIND,
        "stamp": board.RECORDS + board.RECORD_STAMP,
        "upper": upper,
    }
