"""The online upgrade of a group: the topics' ids that it needs come from the metadata store."""

from collections.abc import Callable

from kafscale.errors import StoreError
from kafscale.groups.consumer.consumer_group import ConsumerGroup, ConsumerPolicy
from kafscale.groups.group import Group
from kafscale.groups.modern.events import Topics
from kafscale.groups.modern.topics import existing_topics
from kafscale.groups.upgrading import check_upgrade, partitions_topics, read_members, upgraded
from kafscale.metadata.store import MetadataStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError


async def consumer_group_of(
    store: MetadataStore,
    classic: Group,
    policy: ConsumerPolicy,
    is_current: Callable[[], bool],
    now_ms: Callable[[], int],
) -> ConsumerGroup | None:
    """The consumer group of the same members as they are now; None if the group is another one by then.

    Members go on while the store is read. Raises `KafkaError` GROUP_ID_NOT_FOUND if the group has to stay a classic
    group, COORDINATOR_NOT_AVAILABLE.
    """
    check_upgrade(classic, policy)
    names = partitions_topics(read_members(classic))
    while True:
        topics = await _topics(store, names)
        if not is_current() or not classic.members:
            return None
        read, names = names, partitions_topics(read_members(classic))
        if names <= read:
            break
    check_upgrade(classic, policy)
    return upgraded(classic, policy, topics, now_ms())


async def _topics(store: MetadataStore, names: frozenset[str]) -> Topics:
    try:
        return await existing_topics(store, names)
    except StoreError as problem:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)) from problem
