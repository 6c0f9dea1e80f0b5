"""Every metric that the broker exports: one row each, in the order of the documentation.

A counter or histogram is counted in the field of `metrics` that is bound to its row; a gauge is read at each scrape.
Export, documentation, and what alerts and dashboards may name derive from the rows (decision 0060).
"""

from kafscale.ops.client_metric_families import FAMILIES as OF_CLIENTS
from kafscale.ops.journal_metric_families import FAMILIES as OF_JOURNALS
from kafscale.ops.metric_family import Family as Family
from kafscale.ops.metric_family import FamilyTable
from kafscale.ops.metric_family import MetricType as MetricType
from kafscale.ops.share_metric_families import FAMILIES as OF_SHARES

SIZE_BOUNDS_BYTES = tuple(float(2**exponent) for exponent in range(10, 31, 2))

_rows = FamilyTable()
_counter, _gauge, _histogram = _rows.counter, _rows.gauge, _rows.histogram

BROKER_INFO = _gauge(
    "kafscale_broker_info", "Always 1; the labels say which broker this is.", "broker_id", "version"
)

TOPIC_BYTES_IN = _counter(
    "kafscale_topic_bytes_in_total", "Bytes of record batches accepted from producers.", "topic"
)
TOPIC_RECORDS_IN = _counter("kafscale_topic_records_in_total", "Records accepted from producers.", "topic")
TOPIC_BATCHES_IN = _counter(
    "kafscale_topic_batches_in_total", "Record batches accepted from producers.", "topic"
)
TOPIC_BYTES_OUT = _counter(
    "kafscale_topic_bytes_out_total", "Bytes of record batches sent to consumers.", "topic"
)
TOPIC_RECORDS_OUT = _counter("kafscale_topic_records_out_total", "Records sent to consumers.", "topic")

TOPIC_FLUSHES = _counter(
    "kafscale_topic_flushes_total", "Slices of the topic's partitions in published flushes.", "topic"
)
TOPIC_REQUEST_COST = _counter(
    "kafscale_topic_request_cost_dollars_total",
    "Dollars for requests to the bucket that a topic causes, by price: `put` (PUT, COPY, POST, LIST) and `get`. A "
    "request for several topics is shared by bytes and slices; `(none)` is what serves no topic (docs/cost.md).",
    "topic",
    "class",
)
TOPIC_STORED_BYTES = _gauge(
    "kafscale_topic_stored_bytes",
    "Bytes of published segments in the partitions that this broker leads and has loaded.",
    "topic",
)
TOPIC_LAST_STABLE_OFFSET_LAG = _gauge(
    "kafscale_topic_last_stable_offset_lag",
    "Offsets from the last stable offset to the log end, which `read_committed` consumers cannot read yet: of the "
    "partition with the most among those that this broker leads. Only topics with an open transaction.",
    "topic",
)
TOPIC_PARTITIONS_LED = _gauge(
    "kafscale_topic_partitions_led", "Partitions of the topic that this broker leads.", "topic"
)

DECOMPRESSED_BATCHES = _counter(
    "kafscale_fetch_decompressed_batches_total",
    "Record batches that were decompressed for consumers that do not say that they have the codec.",
)
DECOMPRESSED_BYTES = _counter(
    "kafscale_fetch_decompressed_bytes_total", "Bytes of these batches after decompression."
)

REQUEST_DURATION = _histogram(
    "kafscale_request_duration_seconds",
    "Time from a request's last byte to its reply's hand-over to the socket, waits included; its count is "
    "the number of requests.",
    "api",
)
REQUEST_ERRORS = _counter(
    "kafscale_request_errors_total",
    "Error codes answered, one per failing topic, partition or request.",
    "api",
    "error",
)

REQUEST_STAGE = _histogram(
    "kafscale_request_stage_seconds",
    "Time of Fetch and Produce requests by stage; a request's stages follow one another and add up to its time. "
    "FETCH: `queue` until its turn, `wait` for min_bytes, `plan`, `load` from the object store, `check` of what was "
    "loaded, `decompress`, `send`. PRODUCE: `queue`, `append`, `flush_wait`, `upload` of the journal's entry and of "
    "those before it, `commit` in the partitions, `reply`.",
    "api",
    "stage",
)
REQUEST_ACTIVE = _histogram(
    "kafscale_request_active_seconds",
    "Time from a Fetch request's last byte to its reply, without the stages `wait` and `send`: how long the broker "
    "takes for records that are there.",
    "api",
)

FLUSH_BYTES = _histogram(
    "kafscale_flush_bytes", "Bytes of a flush: of the records in one entry.", bounds=SIZE_BOUNDS_BYTES
)
FLUSH_DURATION = _histogram(
    "kafscale_flush_duration_seconds",
    "Time from the beginning of a flush to its outcome: what is in it is acknowledged then.",
)
FLUSHES = _counter(
    "kafscale_flushes_total",
    "Flushes by outcome: one entry each, for all partitions with records.",
    "outcome",
)
INDEX_REBUILDS = _counter(
    "kafscale_index_rebuilds_total",
    "Indexes of large segments that were missing or wrong and were rebuilt from their segment.",
)

OBJECT_STORE_DURATION = _histogram(
    "kafscale_object_store_duration_seconds",
    "Time of calls to the object store; its count is the number of calls.",
    "operation",
)
OBJECT_STORE_BYTES = _counter(
    "kafscale_object_store_bytes_total", "Bytes sent to or received from the object store.", "operation"
)
OBJECT_STORE_ERRORS = _counter(
    "kafscale_object_store_errors_total",
    "Calls to the object store that failed; that an object is there, or is not, is no failure, nor is a call that "
    "is cancelled because another one was faster.",
    "operation",
    "error",
)

OBJECT_STORE_REQUESTS = _counter(
    "kafscale_object_store_requests_total",
    "Requests sent to the bucket and its replica, each attempt and each part counted, by S3's name of the operation.",
    "operation",
)
REQUEST_COST = _counter(
    "kafscale_request_cost_dollars_total",
    "Dollars for these requests and their bytes, at the prices of the settings (docs/cost.md).",
    "operation",
)
PRICE = _gauge(
    "kafscale_price_dollars",
    "The prices of the settings: of 1,000 requests (`1000_puts`, `1000_gets`), of a GB (`gb_written`, `gb_read`), of "
    "a GB stored for a month (`gb_month`).",
    "unit",
)
JOURNAL_PRICE = _gauge(
    "kafscale_journal_price_dollars",
    "The same of the journal bucket (KAFSCALE_JOURNAL_PRICE_*); not there without one.",
    "unit",
)
COST_BUDGET = _gauge(
    "kafscale_cost_budget_dollars", "KAFSCALE_COST_BUDGET_PER_MONTH; not there unless it is set."
)
FLUSH_INTERVAL = _gauge("kafscale_flush_interval_seconds", "KAFSCALE_FLUSH_INTERVAL_MS, in seconds.")
FLUSH_BUDGET = _gauge(
    "kafscale_flush_budget_per_second", "KAFSCALE_FLUSHES_PER_SEC: infinite where there is no limit."
)

OBJECT_STORE_HEALTH = _gauge(
    "kafscale_object_store_health",
    "How the object store does what it is asked: 0 healthy, 1 degraded, 2 unavailable; while writes are "
    "unavailable, produce is refused.",
    "calls",
)
OBJECT_STORE_SLOW_RATIO = _gauge(
    "kafscale_object_store_slow_ratio",
    "Share of the calls within KAFSCALE_S3_HEALTH_WINDOW_SEC that failed or took longer than "
    "KAFSCALE_S3_LATENCY_WARN_MS.",
    "calls",
)
OBJECT_STORE_FAILED_RATIO = _gauge(
    "kafscale_object_store_failed_ratio",
    "Share of the calls within KAFSCALE_S3_HEALTH_WINDOW_SEC that failed or took longer than "
    "KAFSCALE_S3_LATENCY_CRIT_MS.",
    "calls",
)
OBJECT_STORE_LATENCY = _gauge(
    "kafscale_object_store_latency_seconds",
    "The time that all calls within KAFSCALE_S3_HEALTH_WINDOW_SEC but a share of KAFSCALE_S3_ERROR_RATE_WARN "
    "took at most, to a quarter; without what the bytes of large ones take.",
    "calls",
)
OBJECT_STORE_PROBES = _counter(
    "kafscale_object_store_probes_total",
    "Calls to the object store made only to see how it is, by outcome.",
    "outcome",
)

SEGMENT_READS = _counter(
    "kafscale_segment_store_reads_total",
    "Reads of segments and indexes asked of each store; counted where there is a replica of the bucket.",
    "store",
)
SEGMENT_READ_BYTES = _counter(
    "kafscale_segment_store_bytes_total", "Bytes that such reads brought from each store.", "store"
)
SEGMENT_READ_MISSES = _counter(
    "kafscale_segment_store_misses_total",
    "Such reads of objects that the store does not have; the replica gets them a little later.",
    "store",
)
SEGMENT_READ_ERRORS = _counter(
    "kafscale_segment_store_errors_total",
    "Such reads that failed; `TimeoutError` is a replica that kept a read waiting for too long.",
    "store",
    "error",
)
SEGMENT_READS_PASSED_OVER = _counter(
    "kafscale_segment_store_passed_over_total",
    "Such reads that a store was not asked for because it had failed lately; never the primary.",
    "store",
)
REPLICA_PASSED_OVER = _gauge(
    "kafscale_replica_passed_over",
    "1 while the replica is not read from because it failed and has not answered since, else 0.",
)

METADATA_STORE_DURATION = _histogram(
    "kafscale_metadata_store_duration_seconds",
    "Time of calls to the metadata store; its count is the number of calls.",
    "operation",
)
METADATA_STORE_ERRORS = _counter(
    "kafscale_metadata_store_errors_total", "Calls to the metadata store that failed.", "operation", "error"
)
METADATA_STORE_SILENT = _gauge(
    "kafscale_metadata_store_silent_seconds",
    "How long ago the newest question was asked that the metadata store has answered. From a lease's time on, "
    "consumers at the end of what this broker knows are sent to others.",
)

BUFFER_USED = _gauge("kafscale_produce_buffer_used_bytes", "Memory taken by records that wait to be flushed.")
BUFFER_LIMIT = _gauge(
    "kafscale_produce_buffer_limit_bytes", "Memory that such records may take before producers are held back."
)

CACHE_USED = _gauge("kafscale_cache_used_bytes", "Memory taken by a cache.", "cache")
CACHE_LIMIT = _gauge("kafscale_cache_limit_bytes", "Memory that a cache may take.", "cache")
CACHE_HITS = _counter("kafscale_cache_hits_total", "Reads that a cache answered.", "cache")
CACHE_MISSES = _counter("kafscale_cache_misses_total", "Reads that a cache could not answer.", "cache")
CACHE_EVICTIONS = _counter(
    "kafscale_cache_evictions_total", "What a cache has dropped to make room for something else.", "cache"
)

GROUPS = _gauge("kafscale_groups", "Consumer groups that this broker coordinates, by state.", "state")
GROUPS_BY_TYPE = _gauge(
    "kafscale_groups_by_type",
    "Groups that this broker coordinates, by type: `classic`, `consumer` (KIP-848), and `share` (KIP-932).",
    "type",
)
GROUPS_OVERDUE = _gauge(
    "kafscale_groups_overdue",
    "Groups that have been rebalancing for more than twice the longest rebalance timeout of their members.",
)
GROUP_MEMBERS = _gauge("kafscale_group_members", "Members of the groups that this broker coordinates.")
GROUP_MEMORY_USED = _gauge(
    "kafscale_group_memory_used_bytes", "Memory taken by groups, their subscriptions and assignments."
)
GROUP_MEMORY_LIMIT = _gauge(
    "kafscale_group_memory_limit_bytes", "Memory that groups may take before members are refused."
)
GROUPS_STORED = _gauge(
    "kafscale_groups_stored_bytes",
    "What the groups of this broker take in the metadata store, by kind: offsets, records, and what share groups "
    "have of partitions (shares).",
    "kind",
)
SHARE_PARTITIONS_REFUSED = _counter(
    "kafscale_share_partitions_refused_total",
    "Partitions that share groups were not assigned because kafscale_groups_stored_limit_bytes, or "
    "KAFSCALE_GROUP_OFFSETS_MAX_BYTES, leaves no room; counted again each time that a group asks for them.",
)
GROUPS_STORED_LIMIT = _gauge(
    "kafscale_groups_stored_limit_bytes",
    "What they may take, by the share of the group shards that this broker coordinates.",
)
GROUP_REBALANCE_DURATION = _histogram(
    "kafscale_group_rebalance_duration_seconds",
    "Time of a rebalance. `classic`: from the first call to join again to the assignments being durable. `consumer`: "
    "from the change of members, subscriptions or topics to the moment when every member has what it is to have; "
    "most members go on meanwhile. The count is the number of completed rebalances.",
    "type",
)
GROUP_ASSIGNMENT_DURATION = _histogram(
    "kafscale_group_assignment_duration_seconds",
    "Time to compute the target assignment of a group of type `consumer`, the read of its topics included; its count "
    "is the number of assignments.",
)
OFFSET_COMMITS = _counter(
    "kafscale_offset_commits_total", "Committed offsets, one for each partition of a commit."
)
OFFSET_COMMIT_DURATION = _histogram(
    "kafscale_offset_commit_duration_seconds", "Time from a commit's request to its offsets being durable."
)
CONSUMER_GROUP_LAG = _gauge(
    "kafscale_consumer_group_lag",
    "Records between a group's committed offset and the log end offset of a partition, of groups that this broker "
    "coordinates; of partitions led elsewhere by their records, which may be KAFSCALE_SEAL_INTERVAL_MS old.",
    "group",
    "topic",
    "partition",
)
CONSUMER_GROUP_LAG_SERIES = _gauge(
    "kafscale_consumer_group_lag_series", "Partitions of groups whose lag is followed."
)
CONSUMER_GROUP_LAG_SERIES_OMITTED = _gauge(
    "kafscale_consumer_group_lag_series_omitted",
    "Partitions of groups whose lag is not followed because KAFSCALE_CONSUMER_LAG_MAX_SERIES others are; "
    "counted up to that limit.",
)

TRANSACTIONS_OPEN = _gauge(
    "kafscale_transactions_open",
    "Transactions that this broker coordinates, by state: `ongoing`, and `ending` from the decision until all "
    "markers are written.",
    "state",
)
TRANSACTIONS_OLDEST = _gauge(
    "kafscale_transactions_oldest_seconds",
    "Age of the oldest of them, by state: `ongoing` since it began, `ending` since it was decided; 0 without one.",
    "state",
)
TRANSACTIONAL_IDS = _gauge(
    "kafscale_transactional_ids", "Transactional ids that this broker coordinates, idle ones included."
)
TRANSACTIONS_ENDED = _counter(
    "kafscale_transactions_ended_total",
    "Transactions that this broker decided: `committed`, `aborted` by the client, `fenced` by a new client of the "
    "same transactional id, `timed_out`.",
    "result",
)
TRANSACTION_COMPLETION = _histogram(
    "kafscale_transaction_completion_seconds",
    "Time from the decision on a transaction to its last marker: until then its producer cannot begin the next.",
)

TOPICS = _gauge("kafscale_topics", "Topics in the cluster.")
PARTITIONS_LED = _gauge("kafscale_partitions_led", "Partitions that this broker leads.")
PARTITIONS_FOLLOWED = _gauge(
    "kafscale_partitions_followed", "Partitions led by other brokers that consumers read from this one."
)
PARTITIONS_OFFLINE = _gauge(
    "kafscale_partitions_offline", "Partitions of the cluster that no broker leads, as this broker sees it."
)
GROUP_SHARDS = _gauge(
    "kafscale_group_shards_coordinated", "Group shards, of 64, whose groups this broker coordinates."
)
BROKERS = _gauge("kafscale_brokers", "Live brokers, as this broker sees it.")
LEADERSHIP_CHANGES = _counter(
    "kafscale_leadership_changes_total",
    "Elections of this broker as a partition's leader (`gained`), and ends of its leadership: by a hand-over "
    "(`handed_over`), or by a newer leader or a failure (`lost`).",
    "change",
)
MERGES = _counter("kafscale_merges_total", "Merges of neighbouring segments, by outcome.", "outcome")
MERGED_SEGMENTS = _counter(
    "kafscale_merged_segments_total", "Segments in whose place a merged one was published."
)
MERGED_BYTES = _counter("kafscale_merged_bytes_total", "Bytes of the merged segments that were published.")
MERGE_DEBT_SEGMENTS = _gauge(
    "kafscale_merge_debt_segments", "Segments of the partitions led that wait to be merged."
)
MERGE_DEBT_BYTES = _gauge("kafscale_merge_debt_bytes", "Bytes of the segments that wait to be merged.")
MERGE_DEBT_AGE = _gauge(
    "kafscale_merge_debt_oldest_seconds",
    "How long a merge has waited at most: since a partition had one due, or since its last one was made.",
)
COMPACTIONS = _counter("kafscale_compactions_total", "Compactions of a partition, by outcome.", "outcome")
COMPACTION_SECONDS = _counter("kafscale_compaction_seconds_total", "Time that compactions took.")
COMPACTION_REMOVED_RECORDS = _counter(
    "kafscale_compaction_removed_records_total",
    "Records that a newer one of their key, or time, made redundant.",
)
COMPACTION_READ_BYTES = _counter(
    "kafscale_compaction_replaced_bytes_total",
    "Bytes of the segments in whose place compacted ones were published.",
)
COMPACTION_WRITTEN_BYTES = _counter(
    "kafscale_compaction_written_bytes_total", "Bytes of the compacted segments that were published."
)
COMPACTION_DIRTY_RATIO = _gauge(
    "kafscale_compaction_dirty_ratio",
    "The largest part of a compacted partition that no compaction has seen yet, 0 to 1.",
)
COMPACTION_OLDEST_DIRTY = _gauge(
    "kafscale_compaction_oldest_dirty_seconds",
    "The age of the oldest segment that waits for a compaction of its partition; 0 if none does.",
)
GARBAGE_REMOVED = _counter(
    "kafscale_garbage_removed_total",
    "Orphans deleted: segments that merging replaced or no record ever named, segments below the log start.",
)
SEGMENTS_EXPIRED = _counter(
    "kafscale_segments_expired_total",
    "Segments removed by retention, by the limit that they exceeded.",
    "limit",
)
BYTES_EXPIRED = _counter(
    "kafscale_bytes_expired_total",
    "Bytes of segments removed by retention, by the limit that they exceeded.",
    "limit",
)
SEGMENTS_LOST = _counter(
    "kafscale_segments_lost_total",
    "Segments whose objects something else has removed: at the start of a log, which now begins after them "
    "(`dropped`), or with older data still there, at each look (`kept`).",
    "outcome",
)
LEASES_ENDED = _counter(
    "kafscale_leases_ended_total", "How often the broker's lease ended although the broker was running."
)
BACKGROUND_FAILURES = _counter(
    "kafscale_background_failures_total",
    "Errors that background work met at one partition, topic or object, without which it went on; the log says at "
    "which.",
    "work",
)
RECORDS_UNREADABLE = _gauge(
    "kafscale_records_unreadable",
    "Records in the metadata store that this broker cannot read and goes on without, by what they describe.",
    "kind",
)
PARTITIONS_HELD_UP = _gauge(
    "kafscale_partitions_held_up",
    "Partitions led by this broker that take no records until a checkpoint of them can be stored.",
)

FAMILIES: tuple[Family, ...] = (*_rows, *OF_SHARES, *OF_JOURNALS, *OF_CLIENTS)
"""All rows, in the order of their declaration."""
