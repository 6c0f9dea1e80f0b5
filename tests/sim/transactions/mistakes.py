"""Mistakes to plant in the model. Each must be found."""

from enum import StrEnum


class Mistake(StrEnum):
    """The place of a mistake."""

    DECISION_NOT_COMPARED = "decide by a record that was read earlier, and put it without a compare"
    MARKERS_BEFORE_THE_DECISION = "put the marker keys before the decision is stored"
    COMPLETE_EARLY = "complete while a marker key is there"
    COMPLETE_UNSTORED = "complete a decision whose marker keys were not all put"
    NO_BUMP_AT_TIMEOUT = "abort for the time-out under the client's own epoch"
    NO_BUMP_AT_INIT = "give a new instance the epoch of the one before"
    NO_BUMP_AT_END = "end a transaction of the new protocol under the same epoch"
    END_WITHOUT_EPOCH = "end a transaction for a request of another epoch"
    ENDED_BY_A_REPLACED_COORDINATOR = "a coordinator that was replaced ends a transaction of the old protocol"
    ADD_AFTER_DECISION = "add a partition to a transaction that is decided"
    ADD_WITHOUT_COMPARE = "a leader adds its partition to a record that it read earlier, without a compare"
    NO_VERIFICATION = "append the first batch of a transaction without asking"
    VERIFIED_WITHOUT_EPOCH = "append the first batch whatever epoch the transaction has"
    VERIFIED_WITHOUT_PARTITION = "append the first batch though the transaction does not name the partition"
    VERIFIED_AFTER_DECISION = "append the first batch of a transaction that is decided"
    VERIFICATION_OUTLIVES_MARKER = "append a verified batch though a marker was handled since the question"
    VERIFICATION_OUTLIVES_TERM = "append a batch that was verified in an earlier term of the broker"
    DELETE_WITHOUT_LEADER = "delete a marker key without comparing the leader key"
    DELETE_ANY_MARKER = "delete a marker key whatever its revision"
    DELETE_BEFORE_COMMIT = "delete a marker key because nothing appended is open: the marker is in flight"
    DELETE_BESIDE_APPEND = (
        "delete a marker key because nothing committed is open, though a batch is in flight"
    )
    OLD_VIEW = "a new leader handles marker keys that its watch showed before its claim"
    MARKER_TWICE = "append the marker again when the answer of its key's deletion is lost"
    GROUP_WITHOUT_SHARD = "handle a group's marker without comparing the shard's record"
    GROUP_VERIFICATION_OUTLIVES_MARKER = (
        "store pending offsets though a marker was handled since the question"
    )
    GROUP_DELETES_FIRST = "delete a group's marker key before its offsets are visible"
    GROUP_SHOWS_AT_ONCE = "make offsets visible when they come"
