"""The meaning of a control record: its key names its kind, its value belongs to that kind (KIP-98)."""

from struct import Struct, error
from typing import NamedTuple

from kafscale.errors import CorruptDataError

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

_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")


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
