"""The record of a journal in the metadata store: stored bytes and value. Stored format: docs/format/journal.md."""

from dataclasses import dataclass
from struct import Struct

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.journal_entry import NOTHING_COMMITTED

VERSION = 1

_FIELDS = Struct(">Hiqq")
_GOES_ON = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRecord:
    """How far a journal is known to be committed, and where it has ended.

    `progress`: the newest committed sequence, -1 for none. `ended_at`: the place of the fence that counts; None: the
    journal goes on. After its end only entries below the fence count, all of them.
    """

    broker_id: int
    progress: int = NOTHING_COMMITTED
    ended_at: int | None = None


def encode_journal_record(record: JournalRecord) -> bytes:
    """The stored bytes."""
    ended_at = _GOES_ON if record.ended_at is None else record.ended_at
    return _FIELDS.pack(VERSION, record.broker_id, record.progress, ended_at)


def decode_journal_record(name: str, data: bytes) -> JournalRecord:
    """The record. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < 2:
        raise CorruptDataError(name, f"a journal record of {len(data)} bytes is too short")
    version = int.from_bytes(data[:2], "big")
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    if len(data) != _FIELDS.size:
        raise CorruptDataError(name, f"a journal record of {len(data)} bytes; legal are {_FIELDS.size}")
    _, broker_id, progress, ended_at = _FIELDS.unpack(data)
    if progress < NOTHING_COMMITTED or ended_at < _GOES_ON or _GOES_ON < ended_at <= progress:
        raise CorruptDataError(name, f"progress {progress}, ended at {ended_at}")
    return JournalRecord(
        broker_id=broker_id, progress=progress, ended_at=None if ended_at == _GOES_ON else ended_at
    )
