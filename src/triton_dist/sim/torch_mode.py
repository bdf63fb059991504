"""Torch operators of a rank in stream order: what the current stream still has to compute is not read or overwritten early.

Tensors of the simulator are ordinary CPU tensors. While a rank's current stream is idle an operator simply runs. While work is queued
there, an operator is queued behind it when it can be (its outputs exist at once, their values come later), and otherwise the host
waits for the stream first, as a read by the host does on a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import SimulationError, UseAfterFreeError
from ..runtime.address_map import rank_of
from ..runtime.symmetric import address_of
from .context import RankContext
from .cost_model import AT_ONCE, OperatorTime
from .python_operators import python_body
from .torch_accesses import PLAIN, accesses_of, tensors_of
from .torch_costs import PRODUCTS, operator_time
from .untraced import untraced
from .work import Copy, TorchCall, has_values

if TYPE_CHECKING:
    from .check.checker import RaceChecker

aten = torch.ops.aten


@dataclass(frozen=True)
class _Kind:
    """How an operator behaves, from its schema. At most one of the first three is true; none: it waits for the stream.

    at_once: touches no element (views, uninitialised and constant outputs).
    writes: overwrites some of its arguments and returns nothing new.
    functional: reads its arguments and returns new tensors.
    draws: writes its first argument with numbers from the rank's random state, which must be drawn when the host calls it.
    composite: is made of other operators, each of which has its own kind. They come here as such in inference mode only.
    """

    at_once: bool = False
    writes: bool = False
    functional: bool = False
    draws: bool = False
    composite: bool = False


_WAITS = {
    aten.resize_.default,
    aten.resize_as_.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor,
    aten.set_.default,
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.mkldnn_rnn_layer.default,  # returns nothing where its shape rule says a workspace
}
"""Operators that read on the host or change a storage, so that they need the stream to be empty."""

_COPIES = {aten.copy_.default, aten.fill_.Scalar, aten.zero_.default}
"""Operators that take any dtype and need only shapes that fit."""

_DRAWS = {"normal_", "uniform_", "bernoulli_", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_"}
"""In-place operators that overwrite a tensor with random numbers and read no tensor (``bernoulli_(p)`` with a tensor ``p`` does)."""

_NO_ELEMENTS_READ = {
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"),
    *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"),
    *("lift_fresh", "lift", "_unsafe_view", "_reshape_alias", "alias", "detach"),
}
"""Operators with a tensor argument that use only its shape, or return it under another shape."""

_NEVER_RANDOM = {"_scaled_dot_product_flash_attention_for_cpu"}
"""Operators that torch marks as random for what they refuse: dropout."""


_SYMMETRIC = "symm_mem"
"""The operators of torch's symmetric memory, which meet those of other ranks."""


@functools.cache
def _kind(func: Any) -> _Kind:
    if func.namespace == "profiler":
        return _Kind(at_once=True)
    if func in _WAITS or func.namespace not in ("aten", "prims"):
        return _Kind()
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return _Kind(composite=True)
    schema = func._schema
    arguments = [argument for argument in schema.arguments if "Tensor" in str(argument.type)]
    name = schema.name.split("::")[1]
    if name in _NO_ELEMENTS_READ or not arguments or func.is_view:
        return _Kind(at_once=True)
    if not schema.returns or any("Tensor" not in str(returned.type) for returned in schema.returns):
        in_place = bool(name.endswith("_") and not schema.returns)  # _foreach_add_ and the like
        return _Kind(writes=in_place)
    random = torch.Tag.nondeterministic_seeded in func.tags and name not in _NEVER_RANDOM
    if any(argument.alias_info is not None for argument in arguments):
        if random:
            draws = name in _DRAWS and len(arguments) == 1
            return _Kind(writes=draws, draws=draws)
        return _Kind(writes=all(returned.alias_info is not None and returned.alias_info.is_write for returned in schema.returns))
    return _Kind(functional=not random)


class StreamOrder(TorchDispatchMode):
    """Active in each rank's thread: puts every operator in its place in the current stream."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch would import its compiler (most of a second) to keep it out of our __torch_dispatch__; ``untraced`` does without.
        return False

    def __init__(self, context: RankContext) -> None:
        super().__init__()
        self._context = context

    @untraced
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        context = self._context
        if FakeTensor in types:
            return func(*args, **kwargs)  # a compiler asks for shapes, under a lock: it must not wait for other ranks
        if func is aten.copy_.default and self._is_peer_copy(args):
            return self._copy_by_engine(*args[:2])
        if context.machine.timing and not _kind(func).composite and func.namespace != _SYMMETRIC:
            taken, outputs = self._only_take_time(func, _kind(func), args, kwargs)
            if taken:
                return outputs
        if func.namespace == _SYMMETRIC:
            from .symmetric_memory import operators

            with self:
                return operators.call(context, func, args, kwargs)
        body = python_body(func, args)
        if body is not None:
            with self:  # what it queues and what torch's operators in it do is ordered as in a host function
                return body(*args, **kwargs)
        races = context.machine.races
        if not context.busy(context.stream):
            begin = context.machine.stream_clock(context.rank, context.stream)
            outputs = func(*args, **kwargs)
            if func in PRODUCTS:
                nanoseconds = context.machine.gpu.costs.torch_ns + self._time(func, args, kwargs, outputs).alone
                context.machine.take_time(context.rank, context.stream, nanoseconds)
            self._note(func, begin)
            if races is not None:
                self._check_now(races, func, args, kwargs, outputs)
            return outputs
        kind = _kind(func)
        if kind.at_once:
            outputs = func(*args, **kwargs)
            if races is not None:
                self._check_in_turn(races, func, args, kwargs, outputs)
            return outputs
        if kind.composite:
            with self:
                return func.decompose(*args, **kwargs)
        if all(issubclass(cls, torch.nn.Parameter) or cls is torch.Tensor for cls in types):
            if kind.writes:
                if kind.draws:
                    return self._queue_random(func, args, kwargs)
                if self._fits_as_it_is(func, args, kwargs):
                    written = _written(func, args, kwargs)
                    self._queue(func, lambda: func(*args, **kwargs), (args, kwargs), written)
                    return written
            elif kind.functional:
                outputs = _outputs_like_meta(func, args, kwargs)
                if outputs is not None:
                    self._queue(func, lambda: _fill(func, outputs, func(*args, **kwargs)), (args, kwargs), outputs)
                    return outputs
        context.synchronize(context.stream, f"torch operator {func}")
        outputs = func(*args, **kwargs)
        self._note(func, context.machine.stream_clock(context.rank, context.stream))
        if races is not None:
            self._check_now(races, func, args, kwargs, outputs)
        return outputs

    def _note(self, func: Any, begin: float) -> None:
        """Tell the recorder, where there is one, of an operator that has run at once."""
        recorder = self._context.machine.recorder
        if recorder is not None and not _kind(func).at_once:
            recorder.operator_ran(self._context.rank, self._context.stream, _label(func), begin)

    def _check_now(self, races: RaceChecker, func: Any, args: tuple, kwargs: dict[str, Any], outputs: Any) -> None:
        """Tell the race check of an operator that has run: in its stream, and the host waits for one that gives it a value."""
        context, kind = self._context, _kind(func)
        accesses = self._accesses(func, args, kwargs, outputs)
        if accesses:
            races.operator_ran(context.rank, context.stream, _label(func), accesses)
        if not (kind.at_once or kind.writes or kind.functional or kind.composite) and not _gives_tensors(func):
            races.host_waited(context.rank, context.stream)

    def _check_in_turn(self, races: RaceChecker, func: Any, args: tuple, kwargs: dict[str, Any], outputs: Any) -> None:
        """Tell the race check of an operator that has run before its turn, when that comes: what is in its stream knows nothing of it."""
        context, stream = self._context, self._context.stream
        accesses = self._accesses(func, args, kwargs, outputs)
        if accesses:
            known = races.host(context.rank).publish()
            # The outputs stay until then, so that nothing else lies there.
            tell = functools.partial(_tell_of, outputs, races, context.rank, stream, _label(func), accesses, known)
            context.machine.follow(context.rank, stream, tell)

    def _accesses(self, func: Any, args: tuple, kwargs: dict[str, Any], outputs: Any) -> list:
        """What an operator reads and writes. Its tensors' memory is known to the machine from now on."""
        if func.namespace not in ("aten", "prims"):
            return []  # made of collectives, kernels and operators that tell of themselves
        read, written = tensors_of(func, args, kwargs, outputs, reads_arguments=not _kind(func).at_once)
        for tensor in (*read, *written):
            register_quietly(self._context, tensor)
        return accesses_of(read, written)

    def _only_take_time(self, func: Any, kind: _Kind, args: tuple, kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """In a run for its time: (whether this was an operator on tensors without values, that now only takes time, its outputs)."""
        if not (kind.writes or kind.functional):
            return (True, _empty_factory(func, args, kwargs)) if _draws_floats(func, args, kwargs) else (False, None)
        if all(has_values(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)):
            return False, None
        outputs = _written(func, args, kwargs) if kind.writes else _outputs_like_meta(func, args, kwargs)
        if outputs is None and kind.functional:
            return False, None
        self._queue(func, None, (args, kwargs), outputs)
        return True, outputs

    def _time(self, func: Any, args: tuple, kwargs: dict[str, Any], outputs: Any) -> OperatorTime:
        """How long an operator takes beyond its start. In a run that computes only matrix products are worth the look at the arguments."""
        machine = self._context.machine
        return operator_time(func, args, kwargs, outputs, machine.gpu) if machine.timing or func in PRODUCTS else AT_ONCE

    def _queue(self, func: Any, run: Callable[[], object] | None, arguments: tuple[tuple, dict[str, Any]], outputs: Any) -> None:
        """Queue an operator behind what its stream does. arguments: positional and by name. run: None where it only takes time."""
        time = self._time(func, arguments[0], arguments[1], outputs)
        keep = (arguments, outputs)
        accesses = () if self._context.machine.races is None else self._accesses(func, arguments[0], arguments[1], outputs)
        if run is None:
            self._context.submit(TorchCall(None, _label(func), time), keep=keep)
            return
        inference = torch.is_inference_mode_enabled()

        def call() -> None:
            # Autograd has done its part when the host called the operator, and has counted the write: a second time would look to a
            # backward pass as if its saved tensors had changed.
            try:
                with torch.inference_mode(inference), torch.no_grad(), torch._C._AutoDispatchBelowADInplaceOrView():
                    run()
            except Exception as error:
                error.add_note(f"in {_label(func)}, queued on a stream by rank {self._context.rank}")
                raise

        self._context.submit(TorchCall(call, _label(func), time, accesses), keep=keep)

    def _fits_as_it_is(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Whether the operator would run without resizing an ``out=`` tensor. A wrong argument raises here, in the host function."""
        if _fits_by_shape(func, args, kwargs):
            return True
        metas = _to_meta((args, kwargs))
        before = [meta.shape for meta in pytree.tree_leaves(metas) if isinstance(meta, torch.Tensor)]
        try:
            func(*metas[0], **metas[1])
        except (NotImplementedError, RuntimeError):
            return False
        return before == [meta.shape for meta in pytree.tree_leaves(metas) if isinstance(meta, torch.Tensor)]

    def _queue_random(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
        """``x.normal_()`` and the like: the numbers are drawn now, as the host's random state says, and stored in stream order."""
        target = args[0]
        drawn = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype)
        func(drawn, *args[1:], **kwargs)
        self._queue(func, lambda: target.copy_(drawn), ((target, drawn), {}), target)
        return target

    def _is_peer_copy(self, args: tuple) -> bool:
        """Whether a ``copy_`` moves plain bytes to or from another rank's heap: a GPU's copy engine does that."""
        target, source = args[0], args[1]
        if type(target) is not torch.Tensor or type(source) is not torch.Tensor or not target.numel():
            return False
        heap = self._context.simulation.heap
        blocks = {address: heap.lookup(address) for address in (address_of(target), address_of(source))}
        return (
            any(block is not None and rank_of(address) != self._context.rank for address, block in blocks.items())
            and target.dtype == source.dtype
            and target.shape == source.shape
            and target.is_contiguous()
            and source.is_contiguous()
        )

    def _copy_by_engine(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        queue_copy(self._context, target, source)
        return target


def queue_copy(context: RankContext, target: torch.Tensor, source: torch.Tensor, stream: int | None = None) -> None:
    """Queue a copy between contiguous tensors of equal dtype and shape on the copy engine of ``stream`` (default: the current one)."""
    for tensor in (target, source):
        register(context, tensor)
    nbytes = target.numel() * target.element_size()
    if nbytes:
        moves_data = not context.machine.timing or has_values(target)
        context.submit(Copy(address_of(target), address_of(source), nbytes, moves_data=moves_data), stream=stream, keep=(target, source))


def register(context: RankContext, tensor: torch.Tensor) -> None:
    """Tell the machine of a tensor's storage, so that kernels may use its address. Symmetric memory is known already.

    Raises UseAfterFreeError for symmetric memory that was freed or is of an earlier simulation.
    """
    if tensor.device.type != "cpu":
        return
    address = address_of(tensor)
    if rank_of(address) is None:
        context.machine.memory.register(tensor)
        return
    block = context.simulation.heap.lookup(address)
    if block is None and tensor.numel():
        raise UseAfterFreeError(
            f"a tensor of shape {list(tensor.shape)} is symmetric memory of a simulation that has ended; give kernels a clone() of it"
        )
    if block is not None and block.freed:
        raise UseAfterFreeError(f"{block.name!r} was freed before its address was asked for; free it after its last use")


def register_quietly(context: RankContext, tensor: torch.Tensor) -> None:
    """Tell the machine of the storage of an ordinary tensor that is not symmetric."""
    if type(tensor) in PLAIN and tensor.device.type == "cpu" and tensor.layout == torch.strided and rank_of(address_of(tensor)) is None:
        context.machine.memory.register(tensor)


def _fits_by_shape(func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether an elementwise in-place operator surely fits. Saves a run on meta tensors, the first of which costs a second of imports."""
    target, tensors = args[0] if args else None, [item for item in pytree.tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    if func not in _COPIES:
        floats = all(tensor.is_floating_point() and tensor.dtype == tensors[0].dtype for tensor in tensors)
        if torch.Tag.pointwise not in func.tags or not func._schema.name.endswith("_") or not floats:
            return False
    if not isinstance(target, torch.Tensor):
        return False
    wanted = target.shape
    return all(
        tensor.dim() <= len(wanted) and all(size in (1, into) for size, into in zip(tensor.shape[::-1], wanted[::-1], strict=False))
        for tensor in tensors
    )


def _to_meta(values: Any) -> Any:
    """The same arguments with every tensor replaced by one without memory; equal tensors stay equal."""
    made: dict[int, torch.Tensor] = {}

    def convert(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        return made[id(tensor)]

    values = pytree.tree_map_only(torch.Tensor, convert, values)
    return pytree.tree_map_only(torch.device, lambda _: torch.device("meta"), values)


def _draws_floats(func: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether an operator makes a new tensor of random floats."""
    if torch.Tag.nondeterministic_seeded not in func.tags or not kwargs.get("dtype", torch.float32).is_floating_point:
        return False
    return not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((args, kwargs))) and "out" not in kwargs


def _empty_factory(func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor:
    """A tensor as a factory makes it, with unspecified elements."""
    meta = func(*args, **{**kwargs, "device": torch.device("meta"), "pin_memory": False})
    return torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype)


def _outputs_like_meta(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Uninitialised outputs of the right shapes, or None if the shapes depend on values or the operator has no shape rule."""
    metas = _to_meta((args, kwargs))
    try:
        result = func(*metas[0], **metas[1])
    except (NotImplementedError, RuntimeError):
        return None
    leaves = pytree.tree_leaves(result)
    inputs = {id(leaf) for leaf in pytree.tree_leaves(metas)}
    if not all(isinstance(leaf, torch.Tensor) and leaf.device.type == "meta" and id(leaf) not in inputs for leaf in leaves):
        return None
    return pytree.tree_map_only(torch.Tensor, lambda meta: torch.empty_strided(meta.shape, meta.stride(), dtype=meta.dtype), result)


def _fill(func: Any, outputs: Any, results: Any) -> None:
    for output, result in zip(pytree.tree_leaves(outputs), pytree.tree_leaves(results), strict=True):
        if not isinstance(result, torch.Tensor) or output.shape != result.shape or output.dtype != result.dtype:
            given = f"{result.dtype} {list(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
            raise SimulationError(
                f"torch operator {func} gave {given} where its shape rule says {output.dtype} "
                f"{list(output.shape)}; call triton_dist.synchronize() before it"
            )
        output.copy_(result)


def _written(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What an operator that writes its arguments returns: those arguments, in the order of the schema."""
    schema = func._schema
    by_alias: dict[Any, Any] = {}
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) and not argument.kwarg_only else kwargs.get(argument.name)
            by_alias[frozenset(argument.alias_info.before_set)] = value
    values = [by_alias[frozenset(returned.alias_info.before_set)] for returned in schema.returns]
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _gives_tensors(func: Any) -> bool:
    """Whether an operator gives tensors only, so that the host knows nothing of their values."""
    return bool(func._schema.returns) and all("Tensor" in str(returned.type) for returned in func._schema.returns)


def _tell_of(outputs: Any, races: RaceChecker, *what: Any) -> None:
    races.operator_ran(*what)


def _label(func: Any) -> str:
    return f"torch.{func._schema.name.removeprefix('aten::')}"
