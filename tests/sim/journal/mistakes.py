"""Mistakes to plant in the model. Each must be found: docs/format/journal.md says which rule it breaks."""

from enum import StrEnum


class Mistake(StrEnum):
    """The place of a mistake."""

    NO_FENCE = "claim by the expired lease alone, without ending the old leader's journal"
    ACK_OUT_OF_ORDER = "acknowledge an entry while one before it is not known to be there"
    COLLECT_PAST_PROGRESS = "collect an entry that the progress in the metadata store has not passed"
    COLLECT_FENCE = "collect the fence of a journal that has ended"
    COLLECT_UNWITNESSED = "collect an entry that no committed entry above it declares to be committed"
    COLLECT_NAMED = "collect an entry that a record still needs"
    COLLECT_UNCONSOLIDATED = "collect an entry with a slice that is not yet in its partition's record"
    NO_COMPARE = "claim without comparing the record's revision"
    STALE_REPLAY = "claim with a record read before the journal was fenced, and no compare"
    NO_SECOND_LOOK = "believe a fence without reading the progress after it: its cell may have been collected"
    FENCE_BY_OVERWRITE = "fence with a plain put"
    LEAD_BEFORE_CLAIM = "append before the claim is known to be in the record"
    CONSOLIDATE_EARLY = "consolidate what is sent and not known to be there"
    HAND_OVER_EARLY = "hand a partition over while an entry with a slice of it is in flight"
    CLAIM_FROM_THE_START = "claim with the start of one's own journal as its position"
    SKIP_HOLES = (
        "take a collected entry for one without slices of the partition, without reading the record again"
    )
    LEFTOVER_FOR_OWN = "name an object that somebody else left under the key"
    INDEX_EARLY = "put the index of an own object before its entry is committed"
    REBUILD_BELIEVES_LOW_FENCES = "rebuild up to a fence below what an entry declares to be committed"
    REBUILD_COUNTS_ALL = "rebuild from entries behind a gap, too"
