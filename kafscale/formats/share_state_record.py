"""How far a share group has come in a partition: stored bytes and value (KIP-932).

Stored format: docs/format/share-partition-records.md. The key says of which group and partition. Fixed integers are
big-endian; varints are those of record batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct, error
from typing import Final, NamedTuple

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.protocol.varint import MAX_VARLONG_BYTES, append_varint, read_varint

VERSION: Final = 1

MAX_SHARE_STATE_BYTES: Final = 256 * 1024
"""The largest value that is written. 2,000 records in flight take less than 10 KiB, whatever became of each."""

MAX_DELIVERY_COUNT: Final = 2**15 - 1
"""An int16, as in Kafka's own requests."""

_MAX_INT32: Final = 2**31 - 1
_MAX_OFFSET: Final = 2**63 - 1

_VERSION = Struct(">H")
_FIXED = Struct(">iiqI")
_MIN_RUN_BYTES = 2
_STATE_BITS = 2


class StoredShareState(IntEnum):
    """The state of records; the numbers are Kafka's. Acquired is 1 there, and never stored."""

    AVAILABLE = 0
    ACKNOWLEDGED = 2
    ARCHIVED = 4


# By half of their number, which takes two bits.
_STATES: Final = tuple(StoredShareState)

_SMALL: Final = 64
"""From here on a varint has more than one byte."""


class StoredShareRun(NamedTuple):
    """Neighbouring records in one state, both ends inclusive. `delivery_count`: how often they were acquired."""

    first: int
    last: int
    state: StoredShareState
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStateRecord:
    """The state that the partition's leader has written.

    `state_epoch`: of the start that it belongs to. `leader_epoch`: of that leader. `start_offset`: the first record
    that is neither acknowledged nor archived. `runs`: the records in flight, ascending; what lies above the last one
    was never acquired.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    runs: tuple[StoredShareRun, ...] = ()


def encode_share_state(record: ShareStateRecord) -> bytes:
    """The stored bytes. Raises `ValueError` for a value that is not legal, or too large."""
    problem = _problem(record)
    if problem:
        raise ValueError(f"share state: {problem}")
    output = bytearray(_VERSION.pack(VERSION))
    output += _FIXED.pack(record.state_epoch, record.leader_epoch, record.start_offset, len(record.runs))
    expected = record.start_offset
    for first, last, state, delivery_count in record.runs:
        packed = delivery_count << _STATE_BITS | state >> 1
        if first != expected:
            append_varint(output, first - last - 1)
            append_varint(output, first - expected)
            append_varint(output, packed)
        elif last - first < _SMALL and packed < _SMALL:
            # As nearly always: both varints have one byte.
            output.append(last - first << 1)
            output.append(packed << 1)
        else:
            append_varint(output, last - first)
            append_varint(output, packed)
        expected = last + 1
    if len(output) > MAX_SHARE_STATE_BYTES:
        raise ValueError(
            f"share state: {len(record.runs)} runs take {len(output)} bytes, "
            f"at most {MAX_SHARE_STATE_BYTES} are legal"
        )
    return bytes(output)


def decode_share_state(name: str, data: bytes) -> ShareStateRecord:
    """The state. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"a share state of {len(data)} bytes is too short")
    (version,) = _VERSION.unpack_from(data)
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        state_epoch, leader_epoch, start_offset, count = _FIXED.unpack_from(data, _VERSION.size)
    except error as problem:
        raise CorruptDataError(name, f"share state: {problem}") from problem
    position = _VERSION.size + _FIXED.size
    if count * _MIN_RUN_BYTES > len(data) - position:
        raise CorruptDataError(name, f"share state: {count} runs in {len(data) - position} bytes")
    runs = []
    expected = start_offset
    try:
        for _ in range(count):
            run, position = _decode_run(data, position, expected)
            runs.append(run)
            expected = run.last + 1
    except IndexError as problem:
        raise CorruptDataError(name, f"share state: ends within run {len(runs)} of {count}") from problem
    except ValueError as problem:
        raise CorruptDataError(name, f"share state: run {len(runs)} of {count}: {problem}") from problem
    if position != len(data):
        raise CorruptDataError(name, f"{len(data) - position} bytes after the end of the share state")
    record = ShareStateRecord(
        state_epoch=state_epoch, leader_epoch=leader_epoch, start_offset=start_offset, runs=tuple(runs)
    )
    reason = _problem(record)
    if reason:
        raise CorruptDataError(name, f"share state: {reason}")
    return record


def _decode_run(data: bytes, position: int, expected: int) -> tuple[StoredShareRun, int]:
    """The run at the position, and the position after it. Raises `ValueError`, `IndexError`."""
    length, position = read_varint(data, position, MAX_VARLONG_BYTES)
    first = expected
    if length < 0:
        length = ~length
        gap, position = read_varint(data, position, MAX_VARLONG_BYTES)
        if gap < 1:
            raise ValueError(f"a gap of {gap} offsets before offset {expected}, legal is 1 or more")
        first += gap
    packed, position = read_varint(data, position, MAX_VARLONG_BYTES)
    code = packed & (1 << _STATE_BITS) - 1
    if code >= len(_STATES):
        raise ValueError(f"state {code} at offset {first}, legal are 0 to {len(_STATES) - 1}")
    return StoredShareRun(first, first + length, _STATES[code], packed >> _STATE_BITS), position


def _problem(record: ShareStateRecord) -> str:
    """Why the record is not legal; empty if it is."""
    if not 0 <= record.state_epoch <= _MAX_INT32:
        return f"state epoch {record.state_epoch}, legal are 0 to {_MAX_INT32}"
    if not 0 <= record.leader_epoch <= _MAX_INT32:
        return f"leader epoch {record.leader_epoch}, legal are 0 to {_MAX_INT32}"
    if not 0 <= record.start_offset <= _MAX_OFFSET:
        return f"start offset {record.start_offset}, legal are 0 to {_MAX_OFFSET}"
    return next(_run_problems(record), "")


def _run_problems(record: ShareStateRecord) -> Iterator[str]:
    expected = record.start_offset
    for first, last, _, delivery_count in record.runs:
        if not expected <= first <= last <= _MAX_OFFSET:
            yield f"run {first} to {last}, legal are offsets in order from {expected} to {_MAX_OFFSET}"
        if not 0 <= delivery_count <= MAX_DELIVERY_COUNT:
            yield (
                f"delivery count {delivery_count} of offsets {first} to {last}, "
                f"legal are 0 to {MAX_DELIVERY_COUNT}"
            )
        expected = last + 1
