"""The online upgrade of a group: the topics' ids that it needs come from the metadata store."""

from collections.abc import Callable

from kafscale.errors import StoreError
from kafscale.groups.consumer.consumer_group import ConsumerGroup, ConsumerPolicy
from kafscale.groups.group import Group
from kafscale.groups.modern.events import Topics
from kafscale.groups.modern.topics import TopicsOfGroups
from kafscale.groups.upgrading import check_upgrade, partitions_topics, read_members, upgraded
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted


async def consumer_group_of(
    stored: TopicsOfGroups,
    classic: Group,
    policy: ConsumerPolicy,
    is_current: Callable[[], bool],
    now_ms: Callable[[], int],
) -> ConsumerGroup | None:
    """The consumer group of the same members as they are now; None if the group is another one by then.

    Members go on while the store is read. Raises `KafkaError` GROUP_ID_NOT_FOUND if the group has to stay a classic
    group, COORDINATOR_NOT_AVAILABLE if the store does not answer, or nothing is known of a topic that members read.
    """
    check_upgrade(classic, policy)
    names = partitions_topics(read_members(classic))
    while True:
        topics = await _topics(stored, names)
        if not is_current() or not classic.members:
            return None
        read, names = names, partitions_topics(read_members(classic))
        if names <= read:
            break
    check_upgrade(classic, policy)
    return upgraded(classic, policy, topics, now_ms())


async def _topics(stored: TopicsOfGroups, names: frozenset[str]) -> Topics:
    try:
        found = await stored.find(names)
    except StoreError as problem:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)) from problem
    if found.unknown:
        # Without its id the members could not keep its partitions.
        name = quoted(min(found.unknown))
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"topic '{name}' cannot be read")
    return found.topics
