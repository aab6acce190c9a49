"""Compiled reading of eight bytes at once as a number, and classifying 64 bytes at once as a bit mask.

A search for spaces or for the ends of words, byte by byte, takes a branch for each, many of which the processor
predicts wrongly. These functions answer for 64 bytes with a few vector instructions (AVX-512, AVX2, NEON: whatever
LLVM finds) and leave only the set bits to visit. Bit i of a mask is for byte `at + i`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.core.typing.context import Context
from numba.core.typing.templates import Signature

from dupq.kernel_cache import Integer, numba

Arguments = Sequence[ir.Value]  # of the code that is generated
Intrinsic = tuple[Signature, Callable[[CPUContext, ir.IRBuilder, Signature, Arguments], ir.Value]]

# mypy would count the compiler's context among the arguments of a call
intrinsic: Callable[[Callable[..., Intrinsic]], Callable[..., Any]] = extending.intrinsic

_U = np.uint64
_BYTES_64 = ir.VectorType(ir.IntType(8), 64)
_BITS_64 = ir.VectorType(ir.IntType(1), 64)
_NUMBERS_16 = ir.VectorType(ir.IntType(64), 16)


@intrinsic
def eight_bytes(typing_context: Context, data: types.Array, at: types.Integer) -> Intrinsic:
    """The eight bytes from `at` on as one little-endian number; they are all inside `data`."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        return _load(context, builder, signature, arguments, ir.IntType(64))

    return types.uint64(data, types.int64), generate


@numba.njit(nogil=True, cache=True)
def some_bytes(data: np.ndarray, at: Integer, end: Integer) -> np.uint64:
    """The up to eight bytes from `at` to `end` as a little-endian number."""
    number = _U(0)
    for place in range(min(end - at, 8)):
        number |= _U(data[_U(at + place)]) << _U(8 * place)
    return number


@intrinsic
def store_eight(typing_context: Context, target: types.Array, at: types.Integer, word: types.Integer) -> Intrinsic:
    """Write a number's eight bytes from `at` on; there is room for them."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        pointer = _pointer(context, builder, signature, arguments, ir.IntType(64))
        builder.store(arguments[2], pointer, align=1)
        return context.get_dummy_value()

    return types.void(target, types.int64, types.uint64), generate


@intrinsic
def equal_in_64(typing_context: Context, data: types.Array, at: types.Integer, byte: types.Integer) -> Intrinsic:
    """Which of the 64 bytes from `at` on are `byte` (uint8)."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        found = _load(context, builder, signature, arguments, _BYTES_64)
        wanted = _repeated(builder, arguments[2], _BYTES_64)
        return builder.bitcast(builder.icmp_unsigned("==", found, wanted), ir.IntType(64))

    return types.uint64(data, types.int64, types.uint8), generate


@intrinsic
def letters_in_64(typing_context: Context, data: types.Array, at: types.Integer) -> Intrinsic:
    """Which of the 64 bytes from `at` on are small ASCII letters."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        found = _load(context, builder, signature, arguments, _BYTES_64)
        return builder.bitcast(_is_letter(builder, found, "a"), ir.IntType(64))

    return types.uint64(data, types.int64), generate


@intrinsic
def words_in_64(typing_context: Context, data: types.Array, at: types.Integer) -> Intrinsic:
    """Which of the 64 bytes from `at` on are small ASCII letters, digits or underscores."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        found = _load(context, builder, signature, arguments, _BYTES_64)
        letters = _is_letter(builder, found, "a")
        digits = builder.icmp_unsigned("<", builder.sub(found, _all(ord("0"))), _all(10))
        either = builder.or_(builder.or_(letters, digits), builder.icmp_unsigned("==", found, _all(ord("_"))))
        return builder.bitcast(either, ir.IntType(64))

    return types.uint64(data, types.int64), generate


@intrinsic
def beyond_ascii_in_64(typing_context: Context, data: types.Array, at: types.Integer) -> Intrinsic:
    """Which of the 64 bytes from `at` on are no ASCII."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        found = _load(context, builder, signature, arguments, _BYTES_64)
        return builder.bitcast(builder.icmp_signed("<", found, _all(0)), ir.IntType(64))

    return types.uint64(data, types.int64), generate


@intrinsic
def lower_64(
    typing_context: Context, source: types.Array, at: types.Integer, target: types.Array, place: types.Integer
) -> Intrinsic:
    """Copy the 64 bytes from `at` on to `place` in `target`, ASCII in lower case."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        found = _load(context, builder, signature, arguments, _BYTES_64)
        small = builder.or_(found, _all(32))
        pointer = _pointer(context, builder, signature, arguments, _BYTES_64, 2)
        builder.store(builder.select(_is_letter(builder, found, "A"), small, found), pointer, align=1)
        return context.get_dummy_value()

    return types.void(source, types.int64, target, types.int64), generate


@intrinsic
def gather_64(
    typing_context: Context,
    source: types.Array,
    at: types.Integer,
    kept: types.Integer,
    blank: types.Integer,
    target: types.Array,
    place: types.Integer,
) -> Intrinsic:
    """Write those of the 64 bytes from `at` on whose bit in `kept` is set to `place` in `target`, without gaps.

    Those whose bit in `blank` is set are written as spaces. There is room for 64 bytes, of which the rest is undefined.
    """

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        found = _load(context, builder, signature, arguments, _BYTES_64)
        chosen, spaces = (builder.bitcast(arguments[which], _BITS_64) for which in (2, 3))
        pointer = _pointer(context, builder, signature, arguments, _BYTES_64, 4)
        gathered = _gather(builder, builder.select(spaces, _all(32), found), chosen)
        builder.store(gathered, pointer, align=1)
        return context.get_dummy_value()

    return types.void(source, types.int64, types.uint64, types.uint64, target, types.int64), generate


def _gather(builder: ir.IRBuilder, values: ir.Value, chosen: ir.Value) -> ir.Value:
    """One instruction with AVX-512 VBMI2, else a loop without branches that LLVM unrolls."""
    kind = ir.FunctionType(values.type, [values.type, chosen.type, values.type])
    function = cgutils.get_or_insert_function(
        builder.module, kind, f"llvm.experimental.vector.compress.v{values.type.count}i{values.type.element.width}"
    )
    return builder.call(function, [values, chosen, ir.Constant(values.type, ir.Undefined)])


@intrinsic
def store_places(
    typing_context: Context, mask: types.Integer, first: types.Integer, target: types.Array, place: types.Integer
) -> Intrinsic:
    """Write `first` plus the place of each of the lowest 16 bits set (int64) from `place` on in `target`.

    16 numbers are written always: those behind the last bit are undefined.
    """

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        pointer = _pointer(context, builder, signature, arguments, _NUMBERS_16, 2)
        if "+avx512vbmi2" in context.codegen().magic_tuple()[2]:
            places = _places_by_gathering(builder, arguments[0])
        else:
            places = _places_one_by_one(builder, arguments[0])
        added = _repeated(builder, arguments[1], _NUMBERS_16)
        builder.store(builder.add(places, added), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64, target, types.int64), generate


def _places_by_gathering(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """The numbers 0 to 63 that have their bit set."""
    numbers = ir.Constant(_BYTES_64, list(range(64)))
    gathered = _gather(builder, numbers, builder.bitcast(mask, _BITS_64))
    low = builder.shuffle_vector(gathered, gathered, ir.Constant(ir.VectorType(ir.IntType(32), 16), list(range(16))))
    return builder.zext(low, _NUMBERS_16)


def _places_one_by_one(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    places = ir.Constant(_NUMBERS_16, ir.Undefined)
    for number in range(16):
        lowest = builder.cttz(mask, ir.Constant(ir.IntType(1), 0))
        places = builder.insert_element(places, lowest, ir.Constant(ir.IntType(32), number))
        mask = builder.and_(mask, builder.sub(mask, ir.Constant(ir.IntType(64), 1)))
    return places


@intrinsic
def highest_bit(typing_context: Context, mask: types.Integer) -> Intrinsic:
    """The index of the highest bit set (int64), -1 where there is none."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        zeros = builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))
        return builder.sub(ir.Constant(ir.IntType(64), 63), zeros)

    return types.int64(types.uint64), generate


@intrinsic
def lowest_bit(typing_context: Context, mask: types.Integer) -> Intrinsic:
    """The index of the lowest bit set (int64), 64 where there is none."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def count_bits(typing_context: Context, mask: types.Integer) -> Intrinsic:
    """How many bits are set (int64)."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _all(byte: int) -> ir.Constant:
    return ir.Constant(_BYTES_64, [byte] * 64)


def _repeated(builder: ir.IRBuilder, value: ir.Value, kind: ir.VectorType) -> ir.Value:
    """The vector whose every element is `value`."""
    undefined = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None))


def _is_letter(builder: ir.IRBuilder, found: ir.Value, first: str) -> ir.Value:
    return builder.icmp_unsigned("<", builder.sub(found, _all(ord(first))), _all(26))


def _load(
    context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments, kind: ir.Type
) -> ir.Value:
    return builder.load(_pointer(context, builder, signature, arguments, kind), align=1)


def _pointer(
    context: CPUContext,
    builder: ir.IRBuilder,
    signature: Signature,
    arguments: Arguments,
    kind: ir.Type,
    which: int = 0,
) -> ir.Value:
    """The place in an array, both arguments, the former the one numbered `which`, as a pointer to `kind`."""
    array = context.make_array(signature.args[which])(context, builder, arguments[which])
    return builder.bitcast(builder.gep(array.data, [arguments[which + 1]]), kind.as_pointer())
