"""The kind of a stored batch, as transactions see it, from its bytes. Pure."""

from kafscale.errors import CorruptDataError
from kafscale.formats.partition_transactions import BatchKind
from kafscale.protocol.control_records import ABORT, COMMIT, read_control_batch
from kafscale.protocol.record_batch import BatchHeader


def kind_of_batch(header: BatchHeader, batch: memoryview) -> BatchKind:
    """The kind of a batch whose CRC has been checked. A control batch that ends no transaction is `PLAIN`.

    `batch`: looked at for control batches only. A marker that compaction has emptied is a `COMMIT`: nothing is left
    of its transaction, and only its epoch matters. Raises `CorruptDataError` for a control batch that cannot be read.
    """
    if not header.is_transactional:
        return BatchKind.PLAIN
    if not header.is_control:
        return BatchKind.TRANSACTIONAL
    if not header.record_count:
        return BatchKind.COMMIT
    match read_control_batch(batch).type_id:
        case kind if kind == ABORT:
            return BatchKind.ABORT
        case kind if kind == COMMIT:
            return BatchKind.COMMIT
        case kind:
            raise CorruptDataError("control record", f"type {kind} in a batch that is transactional")
