"""TD1xx: what is seen while a program runs on the simulator."""

from __future__ import annotations

from .lint import Lint

RUNNING: tuple[Lint, ...] = (
    Lint("TD101", "data-race", "Two accesses of the same memory that nothing orders, at least one of which writes."),
    Lint("TD102", "scope-too-narrow", "A word orders nothing because the scope of an access of it ends before the one who meets it."),
    Lint("TD103", "missing-block-barrier", "Threads of one block meet, or one releases what others did, with no block barrier between."),
    Lint("TD104", "out-of-bounds", "An access lies outside of its allocation."),
    Lint("TD105", "use-after-free", "An access of memory that was freed before."),
    Lint("TD106", "never-written", "Symmetric memory is read that nobody has written."),
    Lint("TD107", "signal-overwritten", "A signal is overwritten by someone who does not know that it has been seen."),
    Lint("TD108", "equality-overtaken", "A word is added to while a wait for equality may not have seen the value before."),
    Lint("TD109", "stale-word", "A wait holds because of the signal of an earlier call, which nobody has reset."),
    Lint("TD110", "shared-slot", "Two groups that nothing orders use the same signal word."),
    Lint("TD111", "divergent-notify", "A notify, which is a call of the whole block, is reached by some of its threads only."),
    Lint("TD112", "masked-value", "A value that a load masked off, with no other= to say what it is, is stored, branched on or signalled."),
    Lint("TD113", "missing-token", "A load behind a wait does not depend on the wait's token.", warns=True),
    Lint("TD114", "wait-in-pipelined-loop", "A wait stands in a loop that is to be software-pipelined, and is not.", warns=True),
    Lint("TD115", "address-overflow", "A 32-bit product or sum overflows on its way into an address that is accessed."),
    Lint("TD116", "rank-specialized", "The rank is an integer argument: rank 1 compiles a kernel of its own.", warns=True),
    Lint("TD117", "grid-differs", "A program waits for ever in a kernel that the ranks have launched with different grids."),
    Lint("TD118", "signal-pad-left-set", "A word of a signal pad is not zero when everything has run: a signal to its next user."),
    Lint("TD119", "asm-hides-operand", "Inline assembly declares a register by a name that the compiler may have given to an operand."),
    Lint("TD120", "asm-overwrites-operand", "Inline assembly writes a result before it has read an operand of the same kind.", warns=True),
    Lint("TD121", "asm-runs-twice", "Inline assembly with an effect stands on a tile that the compiler lays out twice, and runs twice."),
)  # fmt: skip
