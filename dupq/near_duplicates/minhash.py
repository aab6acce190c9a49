"""The compiled inner loop of MinHash: the minimum of each of 64 permutations over a text's shingles.

The minima, multipliers and addends of 64 permutations stay in vector registers (twelve with AVX-512) while all
shingles pass. What is left is a multiplication, an addition and a minimum for each permutation and shingle, which
keeps the vector units of the processor busy: a loop that LLVM vectorises by itself reads and writes the registers at
each shingle, and is slower for texts of a hundred shingles.
"""

from collections.abc import Iterator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.core.typing.context import Context
from numba.core.typing.templates import Signature

from dupq.kernel_cache import Integer, numba
from dupq.text.packed_bytes import Arguments, Intrinsic, intrinsic

TOGETHER = 4  # shingles of one step of the loop
_LANES, _REGISTERS = 16, 4
GROUP = _LANES * _REGISTERS  # permutations

_NUMBER, _PLACE = ir.IntType(32), ir.IntType(64)
_NUMBERS = ir.VectorType(_NUMBER, _LANES)
_EMPTY = ir.Constant(_NUMBERS, [0xFFFFFFFF] * _LANES)


@intrinsic
def _least_of_group(
    typing_context: Context,
    values: types.Array,
    count: types.Integer,
    multipliers: types.Array,
    addends: types.Array,
    least: types.Array,
    first: types.Integer,
) -> Intrinsic:
    """As `least_values` for the permutations from `first` on, a whole group."""

    def generate(context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Arguments) -> ir.Value:
        def pointers(which: int) -> list[ir.Value]:
            array = context.make_array(signature.args[which])(context, builder, arguments[which])
            begin = builder.gep(array.data, [arguments[5]])
            indices = (ir.Constant(_PLACE, register * _LANES) for register in range(_REGISTERS))
            return [builder.bitcast(builder.gep(begin, [index]), _NUMBERS.as_pointer()) for index in indices]

        shingles = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        lines = [(builder.load(a, align=4), builder.load(b, align=4)) for a, b in _pairs(pointers(2), pointers(3))]
        for found, target in _pairs(_loop(builder, shingles, arguments[1], lines), pointers(4)):
            builder.store(found, target, align=4)
        return context.get_dummy_value()

    return types.void(values, types.int64, multipliers, addends, least, types.int64), generate


def _loop(
    builder: ir.IRBuilder, shingles: ir.Value, count: ir.Value, lines: list[tuple[ir.Value, ir.Value]]
) -> list[ir.Value]:
    """The registers of minima after a loop over the shingles, TOGETHER at a time, at least once."""
    minimum = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_NUMBERS, [_NUMBERS] * 2), f"llvm.umin.v{_LANES}i32"
    )
    before, body, behind = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(body)
    builder.position_at_end(body)
    index, starts = builder.phi(_PLACE), [builder.phi(_NUMBERS) for _ in lines]
    found = list(starts)
    for number in range(TOGETHER):
        value = _repeated(builder, builder.load(_at(builder, shingles, index, number), align=4))
        for register, (multiplier, addend) in enumerate(lines):
            permuted = builder.add(builder.mul(multiplier, value), addend)
            found[register] = builder.call(minimum, [found[register], permuted])
    following = builder.add(index, ir.Constant(_PLACE, TOGETHER))
    builder.cbranch(builder.icmp_signed("<", following, count), body, behind)
    for phi, following_value in _pairs([index, *starts], [following, *found]):
        phi.add_incoming(ir.Constant(_PLACE, 0) if phi is index else _EMPTY, before)
        phi.add_incoming(following_value, body)
    builder.position_at_end(behind)
    return found


def _pairs(left: list[ir.Value], right: list[ir.Value]) -> Iterator[tuple[ir.Value, ir.Value]]:
    return zip(left, right, strict=True)


def _at(builder: ir.IRBuilder, array: ir.Value, index: ir.Value, number: int) -> ir.Value:
    return builder.gep(array, [builder.add(index, ir.Constant(_PLACE, number))])


def _repeated(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    undefined = ir.Constant(_NUMBERS, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_NUMBER, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_NUMBER, _LANES), None))


@numba.njit(nogil=True, cache=True)
def least_values(
    values: np.ndarray, count: Integer, multipliers: np.ndarray, addends: np.ndarray, least: np.ndarray
) -> None:
    """Write the minimum of multiplier * value + addend over `values[:count]` (uint32) to `least`, for each permutation.

    The number of permutations is a multiple of GROUP, `count` is at least 1. After the values come TOGETHER repeats of
    some of them, of which the last step may read some.
    """
    for first in range(0, len(least), GROUP):
        _least_of_group(values, count, multipliers, addends, least, first)
