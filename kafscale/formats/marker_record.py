"""A marker that is to be written: how a producer's transaction ended. Stored bytes and value.

Stored format: docs/format/transaction-record.md#markers. The key says for which partition or group, and of which
producer id.
"""

import uuid
from dataclasses import dataclass
from struct import Struct

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.protocol.wire import UNDERRUN_ERRORS, MalformedRequestError, read_string, string

VERSION = 1

NO_TOPIC_ID = uuid.UUID(int=0)
"""`topic_id` of a group's marker."""

_VERSION = Struct(">H")
_FIXED = Struct(">16sBBhiqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerRecord:
    """The decision on a transaction, as one partition or group needs it.

    `topic_id`: of the topic that was meant; the marker means nothing to a later topic of the same name.
    `producer_epoch`: the epoch that the marker's control batch has; from then on lower ones are fenced.
    `coordinator_epoch`: how often the coordinator's shard changed its owner. `decided_ms`: Unix milliseconds.
    `decision_revision`: the metadata store's revision at which it was decided; 0: that of the marker's own key, which
    was put together with the decision.
    """

    transactional_id: str
    commit: bool
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int
    decided_ms: int
    topic_id: uuid.UUID = NO_TOPIC_ID
    decision_revision: int = 0


def encode_marker_record(marker: MarkerRecord) -> bytes:
    """The stored bytes."""
    return b"".join(
        (
            _VERSION.pack(VERSION),
            _FIXED.pack(
                marker.topic_id.bytes,
                marker.commit,
                marker.transaction_version,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.decided_ms,
                marker.decision_revision,
            ),
            string(marker.transactional_id),
        )
    )


def decode_marker_record(name: str, data: bytes) -> MarkerRecord:
    """The marker. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"a marker of {len(data)} bytes is too short")
    (version,) = _VERSION.unpack_from(data)
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        topic_id, commit, transaction_version, epoch, coordinator_epoch, decided_ms, revision = (
            _FIXED.unpack_from(data, _VERSION.size)
        )
        transactional_id, end = read_string(data, _VERSION.size + _FIXED.size, "transactional id")
    except (MalformedRequestError, *UNDERRUN_ERRORS) as problem:
        raise CorruptDataError(name, f"marker: {problem}") from problem
    if end != len(data):
        raise CorruptDataError(name, f"marker: {len(data) - end} bytes follow the transactional id")
    if commit not in (0, 1) or transaction_version not in (1, 2):
        raise CorruptDataError(name, f"marker: decision {commit}, transaction version {transaction_version}")
    return MarkerRecord(
        transactional_id=transactional_id,
        commit=bool(commit),
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        decided_ms=decided_ms,
        topic_id=uuid.UUID(bytes=topic_id),
        decision_revision=revision,
    )
