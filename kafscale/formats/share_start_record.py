"""Where a share group begins to read a partition: stored bytes and value (KIP-932).

Stored format: docs/format/share-partition-records.md. The key says of which group and partition. All integers are
big-endian; strings are Kafka's.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.protocol.wire import UNDERRUN_ERRORS, MalformedRequestError, read_string, string

VERSION: Final = 1

AS_CONFIGURED: Final = -1
"""In place of an offset: `share.auto.offset.reset` decides at the first fetch."""

MAX_STATE_EPOCH: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
MAX_CHANGED_BY_BYTES: Final = 1024

_VERSION = Struct(">H")
_FIXED = Struct(">iqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStartRecord:
    """The start that the group's coordinator has set.

    `state_epoch`: grows by one with each alteration; a state of another epoch means nothing. `start_offset`:
    `AS_CONFIGURED`, or that offset. `changed_ms`: Unix milliseconds. `changed_by`: the principal that has set it,
    empty for the coordinator itself.
    """

    state_epoch: int
    start_offset: int = AS_CONFIGURED
    changed_ms: int
    changed_by: str = ""


def encode_share_start(record: ShareStartRecord) -> bytes:
    """The stored bytes. Raises `ValueError` for a value that is not legal."""
    problem = _problem(record)
    if problem:
        raise ValueError(f"share start: {problem}")
    return (
        _VERSION.pack(VERSION)
        + _FIXED.pack(record.state_epoch, record.start_offset, record.changed_ms)
        + string(record.changed_by)
    )


def decode_share_start(name: str, data: bytes) -> ShareStartRecord:
    """The start. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"a share start of {len(data)} bytes is too short")
    (version,) = _VERSION.unpack_from(data)
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        state_epoch, start_offset, changed_ms = _FIXED.unpack_from(data, _VERSION.size)
        changed_by, end = read_string(data, _VERSION.size + _FIXED.size, "who changed it")
    except (MalformedRequestError, *UNDERRUN_ERRORS) as problem:
        raise CorruptDataError(name, f"share start: {problem}") from problem
    if end != len(data):
        raise CorruptDataError(name, f"{len(data) - end} bytes after the end of the share start")
    record = ShareStartRecord(
        state_epoch=state_epoch, start_offset=start_offset, changed_ms=changed_ms, changed_by=changed_by
    )
    reason = _problem(record)
    if reason:
        raise CorruptDataError(name, f"share start: {reason}")
    return record


def _problem(record: ShareStartRecord) -> str:
    """Why the record is not legal; empty if it is."""
    if not 0 <= record.state_epoch <= MAX_STATE_EPOCH:
        return f"state epoch {record.state_epoch}, legal are 0 to {MAX_STATE_EPOCH}"
    if not AS_CONFIGURED <= record.start_offset <= MAX_OFFSET:
        return f"start offset {record.start_offset}, legal are {AS_CONFIGURED} to {MAX_OFFSET}"
    if not -MAX_OFFSET <= record.changed_ms <= MAX_OFFSET:
        return f"changed at {record.changed_ms} ms, legal are {-MAX_OFFSET} to {MAX_OFFSET}"
    if len(record.changed_by.encode()) > MAX_CHANGED_BY_BYTES:
        return (
            f"changed by {record.changed_by[:80]!r}… of {len(record.changed_by.encode())} bytes, "
            f"at most {MAX_CHANGED_BY_BYTES} are legal"
        )
    return ""
