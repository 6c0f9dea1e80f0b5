"""A partition that is looked up by name for a topic id is not another topic's (simulation, seed 691795614)."""

import uuid
from dataclasses import dataclass
from typing import cast

import pytest

from kafscale.cluster.view import ClusterView
from kafscale.formats.partition_record import JournalPosition, PartitionRecord
from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.fetch import FetchPartition
from kafscale.serving.fetch_lookup import refuse_another_topic
from kafscale.serving.partition_fetch import PartitionFetch, TopicFetch

ASKED, ANOTHER = uuid.UUID(int=1), uuid.UUID(int=2)


@dataclass
class View:
    """The view of a broker that knows one topic."""

    known: uuid.UUID

    def topic_by_id(self, topic_id: uuid.UUID) -> object | None:
        return object() if topic_id == self.known else None


@dataclass
class Followed:
    """A partition as a fetch sees it."""

    record: PartitionRecord


def looked_up(led_for: uuid.UUID | None, *, by_name: bool = False, known: uuid.UUID = ASKED) -> ErrorCode:
    """The error after a look-up that found a partition whose leader writes it for that topic; None: unled."""
    position = led_for and JournalPosition(journal_id="a", sequence=0, topic_id=led_for)
    partition = Followed(PartitionRecord(leader_epoch=3, journal=position or None))
    wanted = FetchPartition(0, -1, 0, -1, -1, 1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
    fetch = PartitionFetch(wanted, cast(Partition, partition), unknown, to_follow="orders")
    topic = TopicFetch("orders" if by_name else None, None if by_name else ASKED.bytes, [fetch])
    refuse_another_topic(cast(ClusterView, View(known)), topic)
    return fetch.error_code


@pytest.mark.parametrize("led_for", [ASKED, ANOTHER, None])
def test_an_id_whose_topic_is_gone_is_unknown(led_for: uuid.UUID | None) -> None:
    assert looked_up(led_for, known=ANOTHER) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_record_of_another_topic_is_refused() -> None:
    assert looked_up(ANOTHER) is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("led_for", [ASKED, None])
def test_the_topic_of_the_id_is_served(led_for: uuid.UUID | None) -> None:
    assert looked_up(led_for) is ErrorCode.NONE


def test_a_name_means_whichever_topic_has_it() -> None:
    assert looked_up(ANOTHER, by_name=True) is ErrorCode.NONE
