"""The next step of a leader with a marker that is to be written. Pure.

A marker's key stays until the leader of its partition deletes it, and while it is there, nothing new of its producer
begins anywhere. A leader may see a key late, though, after an earlier leader has deleted it and the producer's next
transaction has begun, with the same epoch in the older protocol: that transaction must not end by this marker. So a
key from before the leader's term is read back once. A later one can only have been deleted by this leader itself.
"""

from enum import Enum, auto


class MarkerStep(Enum):
    """The kinds of steps."""

    READ_BACK = auto()
    """Read the key from the metadata store; it counts if it is there unchanged."""

    WAIT = auto()
    """A marker of this producer is in flight: only its commit shows if anything is open."""

    APPEND = auto()
    """Append the marker, and delete the key once that is committed."""

    DELETE = auto()
    """Nothing is open: delete the key, and let no batch in that was verified before."""


def next_step(
    *,
    marker_epoch: int,
    revision: int,
    led_since_revision: int,
    is_read_back: bool,
    is_in_flight: bool,
    open_epoch: int | None,
) -> MarkerStep:
    """The step for a key that was put at `revision`.

    `is_in_flight`: a marker of the producer is appended and not known to be committed. `open_epoch`: the producer's
    epoch in the transaction that is open in the log, appended batches included; None without one.
    """
    if is_in_flight:
        return MarkerStep.WAIT
    if revision <= led_since_revision and not is_read_back:
        return MarkerStep.READ_BACK
    if open_epoch is not None and open_epoch <= marker_epoch:
        return MarkerStep.APPEND
    return MarkerStep.DELETE
