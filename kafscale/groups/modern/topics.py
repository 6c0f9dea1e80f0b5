"""The topics of a group, as the metadata store has them now: a view that lags must not decide."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafscale.cluster.stored_topics import stored_topics
from kafscale.errors import StoreError
from kafscale.groups.modern.events import TopicIdAndCount, Topics
from kafscale.groups.offsets import readable_topics
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import MetadataStore

logger = logging.getLogger(__name__)

RETRY_SEC: Final = 0.2


def topics_of_records(records: Mapping[str, TopicRecord]) -> Topics:
    """The topics that exist, as an assignment sees them."""
    return {
        name: TopicIdAndCount(record.topic_id, record.partition_count)
        for name, record in records.items()
        if record.state is TopicState.ACTIVE
    }


async def existing_topics(store: MetadataStore, names: Iterable[str]) -> Topics:
    """Those of the topics that exist, as the metadata store has them now. Raises `StoreError`."""
    return topics_of_records(readable_topics(await stored_topics(store, names)))


async def topics_to_assign(store: MetadataStore, subscribed: Callable[[], Iterable[str]]) -> Topics:
    """Those of the topics that `subscribed` returns in the end. Waits for the store, however long it takes."""
    while True:
        names = subscribed()
        try:
            topics = await existing_topics(store, names)
        except StoreError as problem:
            logger.info("an assignment waits for the metadata store", extra={"problem": str(problem)})
            await asyncio.sleep(RETRY_SEC)
            continue
        if names == subscribed():
            return topics
