"""Rendezvous weights: a number for each pair of a broker and one of the items of a name, the same at every broker.

A whole column, which is one broker's weights of many items, is computed at once: Python's integers have any
size, and one that holds a weight in each of its lanes is multiplied, masked and shifted in one step. A lane is
128 bits wide, so that the product of two numbers of 64 bits stays within it.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

WEIGHTS: Final = 2**64
"""Every weight is from 0 to below this."""

COLUMN_ITEMS: Final = 256
"""How many weights one column has at most: with more the integers no longer fit the CPU's nearest cache."""

_MASK: Final = WEIGHTS - 1
_STEP: Final = 0x9E3779B97F4A7C15
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
_SECOND_FACTOR: Final = 0x94D049BB133111EB
_FEW: Final = 8  # Up to so many, one at a time is faster.
_LANE_BITS: Final = 128


class Seeds(dict[int, int]):
    """Broker -> what its weights of all items of the name come from, computed when it is first asked for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __missing__(self, broker_id: int) -> int:
        digest = blake2b(f"{self._name}/{broker_id}".encode(), digest_size=8).digest()
        seed = self[broker_id] = int.from_bytes(digest, "big")
        return seed


def weight(seed: int, index: int) -> int:
    """The finalizer of SplitMix64: neighbouring indexes get unrelated weights.

    One to one for each index: two brokers have the same weight only with the same seed.
    """
    mixed = (seed + index * _STEP) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST_FACTOR) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND_FACTOR) & _MASK
    return mixed ^ (mixed >> 31)


def column(seed: int, start: int, stop: int) -> Sequence[int]:
    """`weight` of each index from `start` to before `stop`, at most `COLUMN_ITEMS` of them."""
    if stop - start <= _FEW:
        return [weight(seed, index) for index in range(start, stop)]
    one_in_each, mask, steps, packed = _lanes(stop - start)
    mixed = (steps + ((seed + start * _STEP) & _MASK) * one_in_each) & mask
    # What a shift moves into the lane below lands in its upper half, which is masked.
    mixed = ((mixed ^ (mixed >> 30 & mask)) * _FIRST_FACTOR) & mask
    mixed = ((mixed ^ (mixed >> 27 & mask)) * _SECOND_FACTOR) & mask
    mixed ^= mixed >> 31 & mask
    return packed.unpack(mixed.to_bytes(packed.size, "little"))


class _Lanes(NamedTuple):
    one_in_each: int
    mask: int
    steps: int
    packed: Struct


@lru_cache(64)  # A topic has full columns, and one that has what is left.
def _lanes(count: int) -> _Lanes:
    one_in_each = sum(1 << (_LANE_BITS * lane) for lane in range(count))
    return _Lanes(
        one_in_each=one_in_each,
        mask=one_in_each * _MASK,
        steps=sum((lane * _STEP & _MASK) << (_LANE_BITS * lane) for lane in range(count)),
        packed=Struct("<" + "Q8x" * count),
    )
