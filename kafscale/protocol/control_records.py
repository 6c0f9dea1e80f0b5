"""The meaning of a control record: its key names its kind, its value belongs to that kind (KIP-98)."""

from collections.abc import Sequence
from struct import Struct, error
from typing import NamedTuple

from kafscale.errors import CorruptDataError
from kafscale.protocol.record_batch import BatchHeader, read_header
from kafscale.protocol.record_builder import RecordBatchBuilder
from kafscale.protocol.records import iterate_records

ABORT = 0
COMMIT = 1

# ControlRecordType of Kafka's clients; those from 2 on occur in Raft's own logs only.
_NAMES = {
    ABORT: "ABORT",
    COMMIT: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
_UNKNOWN = "UNKNOWN"

DECISION_HEADER = "kafscale.decision"
"""The header of a marker that says which decision it carries out: eight bytes, the metadata store's revision."""

_VERSION = 0
_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")
_DECISION = Struct(">q")


class ControlRecord(NamedTuple):
    """`coordinator_epoch` is the transaction coordinator's; None unless this ends a transaction."""

    type_id: int
    coordinator_epoch: int | None

    @property
    def type_name(self) -> str:
        return _NAMES.get(self.type_id, _UNKNOWN)


def parse_control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """The decoded record. Later versions may have more fields, which are not looked at.

    Raises CorruptDataError.
    """
    try:
        version, type_id = _KEY.unpack_from(key or b"")
        if version < 0:
            raise CorruptDataError("control record", f"the version {version} of its key is negative")
        if type_id not in (ABORT, COMMIT):
            return ControlRecord(type_id, None)
        version, coordinator_epoch = _END_MARKER.unpack_from(value or b"")
    except error as problem:
        raise CorruptDataError("control record", f"its key or value is too short: {problem}") from problem
    if version < 0:
        raise CorruptDataError("control record", f"the version {version} of its value is negative")
    return ControlRecord(type_id, coordinator_epoch)


_MOST_CONTROL_BYTES = 64 * 1024


def read_control_batch(batch: memoryview) -> ControlRecord:
    """The first record of a control batch, whose CRC has been checked. Raises `CorruptDataError`."""
    for record in iterate_records(batch, _MOST_CONTROL_BYTES):
        return parse_control_record(record.key, record.value)
    raise CorruptDataError("control record", "the batch has none")


class EndOfTransaction(NamedTuple):
    """The contents of a marker.

    `decision`: the revision of the metadata store at which it was decided, 0 for none.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    decision: int = 0


def end_of_transaction_batch(end: EndOfTransaction, timestamp_ms: int) -> tuple[bytes, BatchHeader]:
    """The control batch that ends a producer's transaction, and its header; its base offset is 0."""
    builder = RecordBatchBuilder()
    builder.append(
        timestamp_ms,
        _KEY.pack(_VERSION, COMMIT if end.is_commit else ABORT),
        _END_MARKER.pack(_VERSION, end.coordinator_epoch),
        [(DECISION_HEADER, _DECISION.pack(end.decision))] if end.decision else (),
    )
    batch = builder.build(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    return batch, read_header(batch, 0)


def decision_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """The decision that a marker's headers name, 0 for none."""
    for name, value in headers:
        if name == DECISION_HEADER and value is not None and len(value) == _DECISION.size:
            return int.from_bytes(value, "big")
    return 0
