"""Initial offsets of a group, so that no member ever has to request where a partition begins.

librdkafka (up to 2.16 at least) can forget where it is when it asks. When the partition is taken away before the
answer to its ListOffsets is there, it takes the outdated answer for a reason to ask again half a second later,
even if the partition is its own again by then and at another offset, and goes on at what that answer says
(`rd_kafka_toppar_handle_Offset`: RD_KAFKA_RESP_ERR__OUTDATED starts `rktp_offset_query_tmr`, which only
`rd_kafka_toppar_fetch_stop` would have ended). A member that is stopped before it heard where its first
partitions begin does that against any broker; test_librdkafka_late_offsets.py shows it without a group.
It asks only about what is committed nowhere, or out of range.
"""

import time

from tests.support.group_apis import commit
from tests.support.group_journal import Committed, Committing, Event
from tests.support.group_member_work import CONSUMER_PROTOCOL
from tests.support.group_observer import Connect
from tests.support.group_wire import await_coordinator

MUST_BEGIN_COMMITTED = frozenset({"librdkafka", CONSUMER_PROTOCOL})
"""The clients with that defect."""


def commit_beginning(connect: Connect, group: str, topic: str, partitions: int) -> list[Event]:
    """Commit 0 for every partition of a new topic, to a group without members; returns its journal.

    `connect`: to the group's coordinator.
    """
    offsets = dict.fromkeys(range(partitions), 0)
    with connect() as connection:
        await_coordinator(connection, group)
        began_s = time.monotonic()
        codes = commit(connection, group, {(topic, partition): 0 for partition in offsets})
        ended_s = time.monotonic()
    assert set(codes.values()) == {0}, f"OffsetCommit to {group}: error codes {codes}"
    return [Committing(time_s=began_s, offsets=offsets), Committed(time_s=ended_s, offsets=offsets)]
