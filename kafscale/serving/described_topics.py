"""The topics that the members of a described group have, by their names."""

import uuid
from typing import TYPE_CHECKING, Final

from kafscale.protocol.acl_codes import Operation, ResourceType

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

MAY_NOT_DESCRIBE: Final = (
    "The group has described topic(s) that the client is not authorized to describe."  # Kafka's words
)


class DescribedTopics:
    """The names of the topics that a group's members have, each looked up once.

    A topic that is gone has none. `hidden`: one of them is a topic that the client may not describe.
    """

    def __init__(self, broker: "Broker", request: "RequestContext") -> None:
        self.hidden = False
        self._view = broker.view
        self._access = request.access
        self._known: dict[uuid.UUID, str | None] = {}

    def of(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id."""
        if topic_id not in self._known:
            self._known[topic_id] = self._look_up(topic_id)
        return self._known[topic_id]

    def _look_up(self, topic_id: uuid.UUID) -> str | None:
        topic = self._view.topic_by_id(topic_id)
        if topic is None:
            return None
        if not self._access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            self.hidden = True
        return topic.name
