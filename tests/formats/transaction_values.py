"""Transaction records, markers and pending offsets at random, for property tests."""

import uuid

from hypothesis import strategies as st

from kafscale.formats.committed_offset import CommittedOffset, encode_committed_offset
from kafscale.formats.marker_record import NO_TOPIC_ID, MarkerRecord
from kafscale.formats.pending_offsets import PendingOffset, PendingOffsets
from kafscale.formats.transaction_record import TransactionRecord, TransactionState, TransactionTopic

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
EPOCHS = st.integers(-1, 2**15 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PRODUCER_IDS = st.integers(-1, 2**63 - 1)
VERSIONS = st.sampled_from([1, 2])


def _topics(chosen: dict[str, tuple[uuid.UUID, set[int]]]) -> tuple[TransactionTopic, ...]:
    return tuple(
        TransactionTopic(name, topic_id, tuple(sorted(indexes)))
        for name, (topic_id, indexes) in sorted(chosen.items())
    )


transaction_records = st.builds(
    TransactionRecord,
    producer_id=PRODUCER_IDS,
    previous_producer_id=PRODUCER_IDS,
    next_producer_id=PRODUCER_IDS,
    producer_epoch=EPOCHS,
    last_producer_epoch=EPOCHS,
    timeout_ms=st.integers(-1, 2**31 - 1),
    state=st.sampled_from(list(TransactionState)[:6]),
    transaction_version=VERSIONS,
    markers_stored=st.booleans(),
    started_ms=INT64,
    updated_ms=INT64,
    topics=st.dictionaries(
        NAMES, st.tuples(st.uuids(), st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=4)), max_size=3
    ).map(_topics),
    groups=st.sets(NAMES, max_size=3).map(lambda groups: tuple(sorted(groups))),
)
marker_records = st.builds(
    MarkerRecord,
    transactional_id=NAMES,
    commit=st.booleans(),
    producer_epoch=EPOCHS,
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    transaction_version=VERSIONS,
    decided_ms=INT64,
    decision_revision=INT64,
    topic_id=st.just(NO_TOPIC_ID) | st.uuids(),
)
committed_offsets = st.builds(
    CommittedOffset,
    topic_id=st.uuids(),
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    commit_timestamp_ms=st.integers(0, 2**63 - 1),
    expire_timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
)
pending_offsets = st.builds(
    PendingOffsets,
    transactional_id=NAMES,
    producer_epoch=EPOCHS,
    offsets=st.dictionaries(
        st.tuples(NAMES, st.integers(0, 2**31 - 1)),
        st.builds(PendingOffset, order=INT64, value=committed_offsets.map(encode_committed_offset)),
        max_size=4,
    ),
)
