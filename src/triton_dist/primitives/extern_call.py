"""``dl.extern_call``: a function of any bitcode library, called by each thread with scalars.

On GPUs the library is linked when the kernel is compiled. On the simulator a Python twin of the function runs, which
``triton_dist.extern_twin`` registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import triton.language as tl

from triton_dist.errors import PrimitiveArgumentError
from triton_dist.primitives import bitcode
from triton_dist.primitives.values import describe, unwrap
from triton_dist.primitives.vector import vector

_NAME = "extern_call"


@tl.core.builtin
def extern_call(lib_name, lib_path, args, arg_type_symbol_dict, is_pure, _semantic=None):
    """Calls a function of a bitcode library; each thread for itself, with scalars and scalar pointers.

    lib_name: what the library is called. lib_path: its file, LLVM bitcode (or LLVM's text form), which is linked into the kernel; ""
    for one that the launch gives as ``extern_libs={lib_name: path}``. args: a list or tuple; Python numbers become int32 or float32.
    arg_type_symbol_dict: from the types of the arguments, a tuple, to ``(symbol, result type)``, of which the entry for the given types is
    taken. A type is Triton's (``tl.int32``) or its name in a signature ("i32", "*fp32" for a pointer, "*void" for any); the result type is
    ``()`` for none. is_pure: the function has no side effect and depends on its arguments only, so calls may be merged, moved or left out.

    The function takes pointers as CUDA and HIP pass them, in the generic address space. To be called from a kernel by way of a function
    that ``triton.language.core.extern`` decorates, since kernels have no dictionaries; Triton does not see changes in the text of such a
    function, nor (in kernels by plain ``triton.jit``) in the library, and may take an older kernel from its cache then.

    Raises PrimitiveArgumentError for other types, for a library that can't be read, and for a symbol that is not in it.
    """
    name, path, pure = unwrap(lib_name), unwrap(lib_path), bool(unwrap(is_pure))
    values = [_scalar(_semantic, number, value) for number, value in enumerate(unwrap(args))]
    signature = _choose(unwrap(arg_type_symbol_dict), values, pure)
    result = _type_of(signature.result) if signature.result else None
    from triton_dist.primitives.lowering import target_of

    if target_of(_semantic.builder.options) == "sim":
        types = ",".join((*signature.operands, signature.result or "void"))
        symbol = f"td.extern_{'pure' if pure else 'call'};library={name};symbol={signature.symbol};types={types}"
        handle = _emit(_semantic, name, path, symbol, values, result, pure)
    else:
        _link(_semantic.builder.options, name, path, signature)
        handle = _emit(_semantic, name, bitcode.marked(path), signature.wrapper, values, result, pure)
    return None if result is None else tl.tensor(handle, result)


def _emit(semantic: Any, name: str, path: str, symbol: str, values: Sequence[tl.tensor], result: tl.dtype | None, pure: bool) -> Any:
    builder = semantic.builder
    kind = tl.int32 if result is None else result
    return builder.create_extern_elementwise(name, path, symbol, [value.handle for value in values], kind.to_ir(builder), pure)


def _link(options: Any, name: str, path: str, signature: bitcode.Signature) -> None:
    given = dict(options.extern_libs).get(name, "")
    if not path and not given:
        raise PrimitiveArgumentError(
            f"{_NAME}: no path of the library {name!r}; give lib_path, or launch the kernel with extern_libs={{{name!r}: path}}"
        )
    bitcode.check_symbol(_NAME, signature.symbol, path or given)
    bitcode.link(options, name, path or given, signature)


def _scalar(semantic: Any, number: int, value: Any) -> tl.tensor:
    value = unwrap(value)
    if isinstance(value, bool | int | float):
        value = semantic.to_tensor(value)
    if not isinstance(value, tl.tensor) or isinstance(value, vector) or value.type.is_block():
        raise PrimitiveArgumentError(f"{_NAME}: argument {number} is {describe(value)}; allowed: a scalar or a scalar pointer")
    return value


def _choose(table: Any, values: Sequence[tl.tensor], pure: bool) -> bitcode.Signature:
    """The entry for the types of the arguments."""
    if not isinstance(table, Mapping) or not table:
        raise PrimitiveArgumentError(
            f"{_NAME}: argument 'arg_type_symbol_dict' is {describe(table)}; allowed: a dict with an entry at least"
        )
    seen = tuple(_name_of(value.type) for value in values)
    for types, entry in table.items():
        wanted = tuple(_name_of(kind) for kind in (types if isinstance(types, Sequence) and not isinstance(types, str) else (types,)))
        if len(wanted) == len(seen) and all(_fits(one, other) for one, other in zip(seen, wanted, strict=True)):
            symbol, result = entry
            return bitcode.Signature(unwrap(symbol), seen, _result_name(result), pure)
    known = " or ".join(f"({', '.join(map(str, map(unwrap, types)))})" for types in table)
    raise PrimitiveArgumentError(f"{_NAME}: the arguments have the types ({', '.join(seen)}); the library's functions take {known}")


def _fits(seen: str, wanted: str) -> bool:
    return seen == wanted or (wanted == "*void" and seen.startswith("*"))


def _result_name(result: Any) -> str:
    result = unwrap(result)
    if isinstance(result, Sequence) and not isinstance(result, str):
        if len(result) > 1:
            raise PrimitiveArgumentError(
                f"{_NAME}: the result type {result!r} has {len(result)} types; a function returns one value or none"
            )
        result = result[0] if result else ""
    return "" if result == "" or result is None or result == tl.void else _name_of(result)


def _name_of(kind: Any) -> str:
    """A type by its name: "int32", "*fp32". Raises PrimitiveArgumentError for what can't be passed."""
    kind = unwrap(kind)
    if isinstance(kind, str):
        element = kind.removeprefix("*")
        name = kind[: len(kind) - len(element)] + bitcode.SCALAR_NAMES.get(element, element)
    elif isinstance(kind, tl.dtype):
        name = f"*{kind.element_ty.name}" if kind.is_ptr() else kind.name
    else:
        raise PrimitiveArgumentError(f'{_NAME}: {kind!r} is no type; give one such as tl.int32, or its name such as "i32" or "*fp32"')
    if not bitcode.is_type_name(name):
        raise PrimitiveArgumentError(
            f"{_NAME}: a value of type {name} can't be passed to a library; allowed: integers, fp16 to fp64, pointers"
        )
    return name


def _type_of(name: str) -> tl.dtype:
    if name.startswith("*"):
        return tl.pointer_type(tl.int8 if name == "*void" else tl.dtype(name[1:]))
    return tl.dtype(name)
