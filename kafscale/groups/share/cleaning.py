"""Deletes the starts and states of share groups whose topic was deleted."""

from collections.abc import Sequence

from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError
from kafscale.formats.topic_record import decode_topic_record
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.share.stored_size import start_size
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataStore
from kafscale.share.state.operations import delete_all, of_deleted_topics


async def delete_of_gone_topics(
    store: MetadataStore, view: ClusterView, groups: Sequence[tuple[GroupShard, RunningGroup]]
) -> None:
    """Delete the starts and states of these share groups whose topic is gone from the store.

    Nothing is deleted while a topic's record cannot be read: it may be that one. Raises `StoreError`, `KafkaError`.
    """
    seen = {topic.topic_id for topic in view.topics(include_deleting=True)}
    suspects: list[tuple[GroupShard, RunningGroup, list[str], list[str]]] = []
    for shard, running in groups:
        group_id = running.group.group_id
        starts = _keys((await store.range(keys.group_share_starts(group_id))).items)
        states = _keys((await store.range(keys.group_share_states(group_id))).items)
        # The view may lag behind: it only saves reading all topics where nothing has changed.
        starts, states = of_deleted_topics(starts, seen), of_deleted_topics(states, seen)
        if starts or states:
            suspects.append((shard, running, starts, states))
    if not suspects:
        return
    try:
        there = {
            decode_topic_record(item.key, item.value).topic_id
            for item in (await store.range(keys.TOPICS)).items
        }
    except CorruptDataError:
        return  # It is reported where topics are watched.
    for shard, running, starts, states in suspects:
        gone = of_deleted_topics(starts, there), of_deleted_topics(states, there)
        # An id is never used again: nothing is to be kept from being written in between.
        for operations in delete_all(*gone):
            await shard.write(operations)
        async with running.starts_lock:
            left = (await store.range(keys.group_share_starts(running.group.group_id))).items
            shard.account_shares(running, sum(start_size(item.key, item.value) for item in left))


def _keys(items: Sequence[KeyValue]) -> list[str]:
    return [item.key for item in items]
