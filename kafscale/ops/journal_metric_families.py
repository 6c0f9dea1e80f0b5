"""The metrics of journals, of sealing and of collection (see `metric_families`). Format: docs/format/journal.md."""

from kafscale.ops.metric_family import Family, FamilyTable

SLICES_BOUNDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10_000.0)

_rows = FamilyTable()
_counter, _gauge, _histogram = _rows.counter, _rows.gauge, _rows.histogram

ENTRY_SLICES = _histogram(
    "kafscale_journal_entry_slices",
    "Partitions that share an entry, one slice each; the count is the number of entries.",
    bounds=SLICES_BOUNDS,
)
ENTRY_PUT = _histogram(
    "kafscale_journal_entry_put_seconds",
    "Time from an entry's PUT to its answer, retries and second requests included.",
)
ENTRY_COMMIT = _histogram(
    "kafscale_journal_entry_commit_seconds",
    "The same until every entry before it is stored, too: from then on its records are acknowledged.",
)
ENTRIES_IN_FLIGHT = _gauge(
    "kafscale_journal_entries_in_flight", "Entries that are sealed and not known to be committed."
)
BUDGET_WAITS = _counter(
    "kafscale_journal_budget_waits_total",
    "Entries that waited because KAFSCALE_FLUSHES_PER_SEC was used up, instead of beginning at once.",
)
BUDGET_WAIT_TIME = _counter(
    "kafscale_journal_budget_wait_seconds_total", "For how long these entries waited, in all."
)
PROGRESS_LAG = _gauge(
    "kafscale_journal_progress_lag_entries",
    "Committed entries that the journal's record in the metadata store does not show yet, so that other brokers "
    "and their consumers do not know of them.",
)
STORED_ENTRIES = _gauge(
    "kafscale_journal_stored_entries", "Entries of this broker's journal that were not collected yet."
)
COLLECTED = _counter(
    "kafscale_journal_collected_objects_total",
    "Entries, fences and gathered objects that were deleted because nothing needs them any more.",
)
COLLECTION_LATE = _gauge(
    "kafscale_journal_collection_late_seconds",
    "By how much the last collection that succeeded, or the broker's start, is longer ago than "
    "five minutes, or KAFSCALE_GARBAGE_CHECK_INTERVAL_SEC if that is less; 0 if it is not.",
)
REPLAYS = _histogram(
    "kafscale_journal_replay_seconds",
    "Time to end a journal and to read what it has behind partitions' records; the count is the number of replays.",
)
REPLAYED_ENTRIES = _counter("kafscale_journal_replayed_entries_total", "Entries that replays read.")
FOLLOWED_ENTRIES = _counter(
    "kafscale_journal_followed_entries_total",
    "Entries of other brokers that were read for consumers at this one.",
)
FENCES = _counter(
    "kafscale_journal_fences_total",
    "Fences: `written` by this broker, to end journals of brokers that have died; `found` by it in its own "
    "journal, so that it registered again.",
    "event",
)
SEAL_DEBT_SLICES = _gauge(
    "kafscale_seal_debt_slices",
    "Slices in entries and gathered objects that records of the partitions led name: they become segments later.",
)
SEAL_DEBT_BYTES = _gauge("kafscale_seal_debt_bytes", "Bytes of these slices.")
SEAL_DEBT_AGE = _gauge(
    "kafscale_seal_debt_oldest_seconds",
    "For how long the oldest of them has waited, since this broker leads it.",
)
SEAL_LATE = _gauge(
    "kafscale_seal_late_seconds",
    "By how much that is longer than KAFSCALE_SEAL_MAX_AGE_MS, after which everything is sealed; 0 if it is not.",
)

FAMILIES: tuple[Family, ...] = tuple(_rows)
