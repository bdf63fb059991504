"""One class for each mistake a user can make; every message names the value seen, what was expected, and what to do."""

from __future__ import annotations


class TritonDistError(Exception):
    """Base class of every error that this package raises on purpose."""


class InvalidArgumentError(TritonDistError, ValueError):
    """An argument has a value or a type that the function does not take."""


class NotInTeamError(InvalidArgumentError):
    """A rank that is not a member of a team made a call that only its members may make."""


class LanesMissingWarning(UserWarning):
    """A SHMEM function of a whole warp was called by some of its threads only."""


class LostRecordsWarning(UserWarning):
    """A profile of kernels is not complete: records found no room in the buffer, or belong to no task."""


class NotInitializedError(TritonDistError, RuntimeError):
    """A function that needs a world (``simulate``, ``initialize``) was called without one."""


class NestedSimulationError(TritonDistError, RuntimeError):
    """``simulate`` was called from inside a simulated rank."""


class SimulationError(TritonDistError, RuntimeError):
    """Base class of what the simulator finds wrong in a program.

    code: of its page in docs/lints, or "". findings: what the lints had found before (a ``triton_dist.lints.Finding`` each).
    """

    code: str = ""
    findings: tuple = ()


class DeadlockError(SimulationError):
    """Nothing can move: the text is the wait-for graph, one line for each thing that waits; what lints say of it comes behind."""


class DataRaceError(SimulationError):
    """Two accesses of the same memory that nothing orders, at least one of which writes; the text names both.

    races: a ``triton_dist.sim.check.Race`` for each, one unless ``RaceCheck(collect=True)`` was asked for.
    """

    code = "TD101"

    def __init__(self, text: str, races: tuple = ()) -> None:
        super().__init__(text)
        self.races = races


class MisuseError(SimulationError):
    """Something that has a code in docs/lints, found by ``simulate(check="lint")``. Where a deadlock comes of it, that is raised.

    findings: a ``triton_dist.lints.Finding`` for each, one unless ``LintCheck(collect=True)`` was asked for. code: of the first one.
    """

    def __init__(self, text: str, findings: tuple = ()) -> None:
        super().__init__(text)
        self.findings = findings
        self.code = findings[0].code if findings else ""


class MisuseWarning(UserWarning):
    """As a MisuseError, where the program is not necessarily wrong."""


class OutOfBoundsError(SimulationError):
    """A kernel or a copy touched memory outside its allocation."""

    code = "TD104"


class UseAfterFreeError(OutOfBoundsError):
    """A kernel or a copy touched memory that was freed before."""

    code = "TD105"


class SymmetricMemoryError(InvalidArgumentError, RuntimeError):
    """A call of torch's symmetric memory has an argument that it does not take; torch raises RuntimeError there."""


class MisalignedAccessError(SimulationError):
    """An address is not a multiple of the size of the element that is read or written there."""


class NotSymmetricError(SimulationError):
    """A pointer that is not in the symmetric heap was given to a primitive that needs a symmetric one."""


class UnreachablePeerError(SimulationError):
    """The rank asked for does not exist or has no direct pointer from here (it is on another node)."""


class DeviceAssertionError(SimulationError, AssertionError):
    """A ``tl.device_assert`` or ``tl.assume`` did not hold."""


class TrapError(SimulationError):
    """A kernel's inline PTX ran ``trap``, which ends a GPU's process; loops that poll too long do so."""


class UnsupportedOperationError(TritonDistError, NotImplementedError):
    """A kernel contains an operation that the simulator does not implement."""


class MissingNameError(UnsupportedOperationError, AttributeError):
    """A name of torch's CUDA or of cuda-bindings that the simulator has nothing for; ``hasattr`` is False for it."""


class InlineAssemblyError(UnsupportedOperationError):
    """A block of inline PTX that an assembler would not take: its text, or constraints that do not fit its operands."""


class UnsupportedInstructionError(UnsupportedOperationError):
    """A block of inline PTX has an instruction that the simulator does not run (docs/inline_ptx.md has what it does)."""


class DivergentNotifyError(SimulationError, UnsupportedOperationError):
    """``notify``, which is a call of a whole block, stands where only some of its threads come, or has arguments that differ among them."""

    code = "TD111"


class FlagReuseError(SimulationError):
    """Data are stored with the flag that their word carries already, so its reader can't tell them from what was there before."""


class NoDeviceError(TritonDistError, RuntimeError):
    """A question about a GPU was asked where there is none, neither a real one nor the simulator's."""


class MissingCapabilityError(TritonDistError, RuntimeError):
    """A function needs something that the GPUs of this machine do not have."""


class TensorMismatchError(TritonDistError, AssertionError, RuntimeError):
    """Two tensors that a test compares differ; the text says where."""


class AllocationMismatchError(TritonDistError, RuntimeError):
    """Ranks called a collective allocation with different shapes, dtypes or order."""


class HeapFullError(TritonDistError, MemoryError):
    """The symmetric heap has no room for an allocation."""


class ReceiveCapacityError(TritonDistError, RuntimeError):
    """A collective whose numbers of rows stand on the device was sent more rows than its output has room for."""


class AddressInUseError(TritonDistError, RuntimeError):
    """The constant address map can't be laid down because something else holds the address."""


class CaptureError(TritonDistError, RuntimeError):
    """Something that a CUDA graph can't record was asked for while a stream is captured."""


class WaitTimeoutError(TritonDistError, TimeoutError):
    """A wait in a kernel, or for the other ranks' hosts, took longer than ``wait_timeout``; the text says who waited for what."""


class PeerLostError(TritonDistError, ConnectionError):
    """The process of another rank has ended without leaving the world, so that waiting for it is in vain."""


class NoWaitBoardError(TritonDistError, LookupError):
    """There is nothing that says what the kernels of a process wait for; the text says why."""


class CollectiveMismatchError(TritonDistError, RuntimeError):
    """Ranks of a process group called different collectives at the same point, or the same one with other shapes."""


class TuningTableError(TritonDistError, ValueError):
    """A file of ``triton-dist tune`` can't be used; the text says which one and why."""


class PrimitiveArgumentError(TritonDistError, TypeError):
    """A device primitive was called with a scope, semantic, dtype or rank it does not take (raised while compiling)."""


class KernelSourceError(TritonDistError, SyntaxError):
    """A kernel's text has a simt region or a subscript that has no meaning (raised when the kernel is compiled)."""


class MissingToolError(TritonDistError, RuntimeError):
    """A program that a tool runs, such as a C compiler or clang, is not on this machine; the text says how to get it."""


class ToolFailedError(TritonDistError, RuntimeError):
    """A program that a tool runs ended with an error; the text has its command and what it said."""


class AutotuneError(TritonDistError, RuntimeError):
    """No config could be chosen; the text says why each of them failed."""


class AutotuneMismatchError(AutotuneError):
    """Ranks tune different things at the same point, or would try different configs."""


class AutotuneWarning(UserWarning):
    """A config was chosen without a real choice."""


class AutotuneCacheWarning(AutotuneWarning):
    """A result of tuning on disk cannot be read or written; everything goes on without it."""
