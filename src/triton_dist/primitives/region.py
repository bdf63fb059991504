"""Regions in which the code runs thread by thread, and single elements of a tile, inside such a region and outside.

``source_rewrite`` turns ``with simt_exec_region() as (i, n):`` and subscripts into calls of the builtins here. At the entry of a region
every tile of which elements are named goes to shared memory, and comes back at its exit if the region stored into it. In between its name
stands for a ``region_tile``, whose elements each thread reads and writes for itself: a tile's own layout never matters.

- Entry: block barrier, tiles to shared memory, block barrier. Exit: block barrier, tiles back. The first barrier also keeps a thread that
  enters from writing over what another has not read back yet: regions of one function share memory.
- The address of a ``region_tile`` dominates the region, so that it is used wherever the tile is, whatever a condition hands on for it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import shared_ledger, sim_threads
from triton_dist.primitives.call import Call, call_function, constant
from triton_dist.primitives.lowering import TARGETS, num_threads, target_of
from triton_dist.primitives.table import PRIMITIVES
from triton_dist.primitives.values import describe, unwrap
from triton_dist.primitives.vector import vector
from triton_dist.primitives.warp_specialization import IN_PARTITIONS

_ALIGNMENT = 16
"""Bytes at which a tile begins."""


class simt_exec_region:
    """A region that each thread of the block runs for itself: ``with simt_exec_region() as (thread_idx, num_threads):``.

    Called by all threads of the block; block barrier at entry and exit. Inside, ``t[i, j]`` and ``t[i, j] = value`` are single elements of
    a tile that was made before; names that exist outside keep what the region assigned. Needs ``triton_dist.jit``, or ``triton-dist run``.
    """

    __triton_builtin__ = True

    def __init__(self, _semantic: Any = None) -> None:
        raise PrimitiveArgumentError(
            "simt_exec_region stands in a with statement of a function decorated by triton_dist.jit; "
            "plain triton.jit functions may have it only in a script that triton-dist run starts"
        )


class region_tile_type(tl.core.base_type):
    """Type of one region_tile; it is equal to itself only."""

    def __init__(self, tile: region_tile) -> None:
        self.tile = tile
        self.scalar = tile.source.dtype

    def is_block(self) -> bool:
        """Not a tile of Triton's."""
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, region_tile_type) and other.tile is self.tile

    def __hash__(self) -> int:
        return id(self.tile)

    def __str__(self) -> str:
        return f"tile of {self.scalar} in a simt region"

    __repr__ = __str__

    def mangle(self) -> str:
        """Refuses to be a function's argument: its memory belongs to the caller."""
        raise PrimitiveArgumentError(f"a {self} can't be passed to a function; pass the elements that it needs")

    def _flatten_ir_types(self, builder: Any, out: list) -> None:
        out.append(tl.int32.to_ir(builder))

    def _unflatten_ir(self, handles: list, cursor: int) -> tuple[region_tile, int]:
        return self.tile, cursor + 1


class region_tile(tl.tensor):
    """A tile while a region runs: shared memory at ``address`` (int32) that holds its elements in row-major order.

    It is a ``tl.tensor`` so that operators come here, and then to ``__getattr__``.
    """

    def __init__(self, source: tl.tensor, address: tl.tensor) -> None:
        self.source = source
        self.address = address
        self.extents = _extents(source)
        self.stored = False
        self.type = region_tile_type(self)

    def _flatten_ir(self, handles: list) -> None:
        self.address._flatten_ir(handles)

    def _set_name(self, builder: Any, name: str) -> None:
        """The address keeps its own."""

    def __str__(self) -> str:
        return str(self.type)

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        message = (
            f"a {self.type} is used as a whole: inside the region only its elements can be used, t[i] or t[i, j]; "
            "do what concerns the whole tile before or after the region"
        )
        raise PrimitiveArgumentError(message) if name in ("handle", "dtype", "shape", "numel") else AttributeError(message)

    @tl.core.builtin
    def __getitem__(self, index, _semantic=None):
        """The element at an index."""
        return _load(_semantic, self, index)


@tl.core.builtin
def enter_region(names, _semantic=None, _generator=None):
    """Begins a region: the named tiles go to shared memory. Returns the thread's index and the number of threads."""
    _refuse_partitions(_generator)
    tiles = {}
    for name in unwrap(names):
        value = _generator.lscope.get(name)
        if isinstance(value, tl.tensor) and value.type.is_block():
            tiles[name] = value
        elif isinstance(value, region_tile):
            raise PrimitiveArgumentError(f"{name!r} is already in a simt region; regions can't be nested")
    _semantic.debug_barrier()
    if tiles:
        total = sum(_bytes_of(value) for value in tiles.values())
        address = _shared_memory(_semantic, _generator, total)
        for name, value in tiles.items():
            tile = region_tile(value, address)
            _emit(_semantic, "shared_store", {"address": _addresses(_semantic, tile), "value": _as_integer(_semantic, value)})
            _generator.set_value(name, tile)
            address = _semantic.add(address, _constant(_semantic, _bytes_of(value)), False)
        _semantic.debug_barrier()
    index = _emit(_semantic, "tid", {}, tl.int32, {"axis": 0})
    return index, num_threads(_semantic=_semantic)


@tl.core.builtin
def exit_region(_semantic=None, _generator=None):
    """Ends a region: tiles that it stored into come back from shared memory, under every name that they have."""
    _semantic.debug_barrier()
    back: dict[int, tl.tensor] = {}
    for name, tile in list(_generator.lscope.items()):
        if isinstance(tile, region_tile):
            if id(tile) not in back:
                back[id(tile)] = _whole(_semantic, tile) if tile.stored else tile.source
            _generator.set_value(name, back[id(tile)])


@tl.core.builtin
def get_element(value, index, _semantic=None, _generator=None):
    """What ``value[index]`` becomes inside a region, for an index without slices."""
    value = unwrap(value)
    if isinstance(value, tl.tensor) and value.type.is_block():
        raise PrimitiveArgumentError(
            "an element of a tile that was made inside the simt region, or that is not named by a variable, can't be read there; "
            "give the tile a name before the region"
        )
    if isinstance(value, tl.core.base_value):
        return _generator.call_Method(_generator.cur_node, value.__getitem__, value, [index], {})
    return value[index]


@tl.core.builtin
def set_element(value, index, new, _semantic=None):
    """What ``value[index] = new`` becomes: the value with that element replaced. Raises PrimitiveArgumentError for other targets."""
    value = unwrap(value)
    if isinstance(value, vector):
        return value.with_element(index, new, _semantic)
    if isinstance(value, region_tile):
        _store(_semantic, value, index, new)
        return value
    if isinstance(value, tl.tensor) and value.type.is_block():
        raise PrimitiveArgumentError(
            "t[i] = value stores an element of a tile inside simt_exec_region, if the tile was made before the region; "
            "outside, use insert, or tl.where for many elements"
        )
    raise PrimitiveArgumentError(f"subscripts of {describe(value)} can't be assigned; a vector's and, in a simt region, a tile's can")


@tl.core.builtin
def update_element(value, index, operator, new, _semantic=None, _generator=None):
    """What ``value[index] += new`` and its kin become; the index is computed once."""
    old = get_element(value, index, _semantic=_semantic, _generator=_generator)
    result = getattr(old, unwrap(operator))(new, _semantic=_semantic)
    return set_element(value, index, result, _semantic=_semantic)


@tl.core.builtin
def extract(input, indices, _semantic=None, _generator=None):
    """The scalar at ``indices`` (one for each dimension) of a tile.

    In a simt region each thread may have indices of its own. Outside, the block calls it and the indices are the same in all threads:
    one that varies is an error on the simulator, and undefined on a GPU.
    """
    if isinstance(input, region_tile):
        return _load(_semantic, input, indices)
    if not isinstance(input, tl.tensor) or not input.type.is_block():
        raise PrimitiveArgumentError(f"extract: argument 'input' is {describe(input)}; allowed: a tile")
    bits = _as_integer(_semantic, input)
    zero = _semantic.scalar_constant(0, dtype=bits.dtype)
    one = _semantic.where(_mask_at(_semantic, input, indices, "extract"), bits, _semantic.splat(zero, _extents(input)))
    # All others are zero, and an exclusive or of bits keeps the sign of a zero and the bits of a NaN.
    found = call_function(Call(PRIMITIVES["tid"], {}, {}, None, generator=_generator), tl.xor_sum, [one])
    return _from_integer(_semantic, found, input.dtype)


@tl.core.builtin
def insert(input, scalar, indices, _semantic=None):
    """The tile with the element at ``indices`` replaced by ``scalar``, converted to the tile's type.

    In a simt region each thread stores its own element into the tile, and the tile is given back. Outside, the block calls it, with
    values and indices that are the same in all threads.
    """
    if isinstance(input, region_tile):
        _store(_semantic, input, indices, scalar)
        return input
    if not isinstance(input, tl.tensor) or not input.type.is_block():
        raise PrimitiveArgumentError(f"insert: argument 'input' is {describe(input)}; allowed: a tile")
    new = _semantic.splat(_element(_semantic, scalar, input.dtype, "insert"), _extents(input))
    return _semantic.where(_mask_at(_semantic, input, indices, "insert"), new, input)


def _refuse_partitions(generator: Any) -> None:
    """Raises PrimitiveArgumentError in a loop that Triton deals out to partitions of warps: each of them would run the region."""
    for loop in generator.scf_stack:
        for word in getattr(getattr(loop, "iter", None), "keywords", ()):
            if word.arg == "warp_specialize" and unwrap(generator.visit(word.value)):
                raise PrimitiveArgumentError(IN_PARTITIONS)


def _shared_memory(semantic: Any, generator: Any, total: int) -> tl.tensor:
    """Address of ``total`` bytes of shared memory; the same for every region of this function that needs as many."""
    total = -(-total // shared_ledger.UNIT) * shared_ledger.UNIT
    function = generator.jit_fn
    key = hashlib.sha256(f"{function.__module__}.{function.__qualname__}".encode()).hexdigest()[:8]
    end = shared_ledger.place(generator, (key, total))
    return _emit(semantic, "shared_memory", {}, tl.int32, {"bytes": total, "key": key, "end": end})


def _emit(semantic: Any, name: str, operands: dict[str, Any], result: Any = None, choices: dict[str, Any] | None = None) -> Any:
    call = Call(PRIMITIVES[name], operands, choices or {}, result)
    return TARGETS[target_of(semantic.builder.options)][name](semantic, call)


def _load(semantic: Any, tile: region_tile, index: Any) -> tl.tensor:
    address = _address_of(semantic, tile, index)
    return _from_integer(semantic, _emit(semantic, "shared_load", {"address": address}, _integer_of(tile.source.dtype)), tile.source.dtype)


def _whole(semantic: Any, tile: region_tile) -> tl.tensor:
    address = _addresses(semantic, tile)
    return _from_integer(semantic, _emit(semantic, "shared_load", {"address": address}, _integer_of(tile.source.dtype)), tile.source.dtype)


def _store(semantic: Any, tile: region_tile, index: Any, new: Any) -> None:
    address = _address_of(semantic, tile, index)
    value = _as_integer(semantic, _element(semantic, new, tile.source.dtype, "t[i] = value"))
    _emit(semantic, "shared_store", {"address": address, "value": value})
    tile.stored = True


def _address_of(semantic: Any, tile: region_tile, index: Any) -> tl.tensor:
    """Address of one element, for the thread's own index."""
    indices = _checked_indices(semantic, index, tile.extents, "t[i]")
    return semantic.add(tile.address, _scaled(semantic, _row_major(semantic, indices, tile.extents), tile), False)


def _addresses(semantic: Any, tile: region_tile) -> tl.tensor:
    """Address of each element, as a tile."""
    offsets = None
    for axis in range(len(tile.extents)):
        along = semantic.mul(_positions(semantic, axis, tile.extents), _constant(semantic, math.prod(tile.extents[axis + 1 :])), False)
        offsets = along if offsets is None else semantic.add(offsets, along, False)
    return semantic.add(_scaled(semantic, offsets, tile), tile.address, False)


def _positions(semantic: Any, axis: int, extents: Sequence[int]) -> tl.tensor:
    """The index along one axis, as a tile."""
    positions = semantic.arange(0, extents[axis])
    for other in range(len(extents)):
        if other != axis:
            positions = semantic.expand_dims(positions, other)
    return semantic.broadcast_impl_shape(positions, list(extents))


def _row_major(semantic: Any, indices: Sequence[tl.tensor], extents: Sequence[int]) -> tl.tensor:
    position = indices[0]
    for index, extent in zip(indices[1:], extents[1:], strict=True):
        position = semantic.add(semantic.mul(position, _constant(semantic, extent), False), index, False)
    return position


def _scaled(semantic: Any, position: tl.tensor, tile: region_tile) -> tl.tensor:
    return semantic.mul(position, _constant(semantic, _integer_of(tile.source.dtype).primitive_bitwidth // 8), False)


def _mask_at(semantic: Any, tile: tl.tensor, index: Any, function: str) -> tl.tensor:
    """True at one element of a tile."""
    extents = _extents(tile)
    mask = None
    for axis, one in enumerate(_checked_indices(semantic, index, extents, function)):
        here = semantic.equal(_positions(semantic, axis, extents), one)
        mask = here if mask is None else semantic.and_(mask, here)
    return mask


def _checked_indices(semantic: Any, index: Any, extents: Sequence[int], what: str) -> list[tl.tensor]:
    """The indices as int32 scalars; those that come at run time are checked by the simulator.

    Raises PrimitiveArgumentError for a wrong number, type, or a constant outside the tile.
    """
    index = unwrap(index)
    indices = list(index) if isinstance(index, tuple | list | tl.tuple) else [index]
    if len(indices) != len(extents):
        raise PrimitiveArgumentError(f"{what}: {len(indices)} indices for a tile of {len(extents)} dimensions; give one for each")
    checked = []
    for axis, one in enumerate(map(unwrap, indices)):
        if isinstance(one, int) and not isinstance(one, bool):
            if not 0 <= one < extents[axis]:
                raise PrimitiveArgumentError(f"{what}: index {one} is outside dimension {axis}, which has {extents[axis]} elements")
            checked.append(_constant(semantic, one))
        elif isinstance(one, tl.tensor) and not isinstance(one, vector) and not one.type.is_block() and one.dtype.is_int():
            checked.append(semantic.cast(one, tl.int32))
        else:
            raise PrimitiveArgumentError(f"{what}: index {axis} is {describe(one)}; allowed: an integer scalar")
    if target_of(semantic.builder.options) == "sim" and not all(isinstance(one, int) for one in map(unwrap, indices)):
        sim_threads.check_index(semantic, checked, extents)
    return checked


def _element(semantic: Any, value: Any, dtype: tl.dtype, what: str) -> tl.tensor:
    """A scalar converted to a tile's element type. Raises PrimitiveArgumentError."""
    value = unwrap(value)
    if isinstance(value, int | float):
        value = semantic.to_tensor(value)
    if not isinstance(value, tl.tensor) or isinstance(value, vector) or value.type.is_block():
        raise PrimitiveArgumentError(f"{what}: the new element is {describe(value)}; allowed: a scalar that converts to {dtype}")
    return semantic.cast(value, dtype)


def _integer_of(dtype: tl.dtype) -> tl.dtype:
    """The integer type that holds an element: 64 bits for a pointer, 8 for a truth value."""
    bits = 64 if dtype.is_ptr() else max(dtype.primitive_bitwidth, 8)
    return tl.core.get_int_dtype(bits, signed=True)


def _as_integer(semantic: Any, value: tl.tensor) -> tl.tensor:
    integer = _integer_of(value.dtype)
    whole = value.dtype.is_ptr() or value.dtype.is_int1()
    return semantic.cast(value, integer) if whole else semantic.bitcast(value, integer)


def _from_integer(semantic: Any, value: tl.tensor, dtype: tl.dtype) -> tl.tensor:
    return semantic.cast(value, dtype) if dtype.is_ptr() or dtype.is_int1() else semantic.bitcast(value, dtype)


def _bytes_of(value: tl.tensor) -> int:
    """Shared memory for a tile, rounded up so that the next one is aligned."""
    size = math.prod(_extents(value)) * _integer_of(value.dtype).primitive_bitwidth // 8
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _extents(value: tl.tensor) -> list[int]:
    return [int(unwrap(extent)) for extent in value.shape]


def _constant(semantic: Any, value: int) -> tl.tensor:
    return constant(semantic, value, tl.int32)
