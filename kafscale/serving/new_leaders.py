"""The leaders that an answer names where this broker is not the one, and where they are (KIP-951).

A client goes there at once, instead of requesting Metadata first: for a topic of thousands of partitions that is most
of the time that a hand-over takes it.
"""

import uuid
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.metadata.model import ListenerName
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.node_endpoints import CurrentLeader, NodeEndpoint

NOT_KNOWN: Final = CurrentLeader()
_NAMES_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class NewLeaders:
    """Those of one answer, for a client of `listener`."""

    def __init__(self, view: ClusterView, listener: ListenerName) -> None:
        self._view = view
        self._listener = listener
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> tuple[NodeEndpoint, ...]:
        """Of all leaders named so far."""
        return tuple(self._endpoints.values())

    def of(self, topic: str, index: int, error_code: int) -> CurrentLeader | None:
        """The partition's leader if the error is that this broker is not it, and the client can reach it."""
        if error_code not in _NAMES_LEADER:
            return None
        leader = self._view.leader(topic, index)
        if leader is None or not self._is_reachable(leader.broker_id):
            return None
        return CurrentLeader(leader.broker_id, leader.leader_epoch)

    def _is_reachable(self, broker_id: int) -> bool:
        """Looked up once for each broker: a request may name thousands of partitions."""
        if broker_id not in self._endpoints:
            broker = self._view.broker(broker_id)
            endpoint = None if broker is None else broker.endpoint(self._listener)
            if broker is None or endpoint is None:
                return False
            self._endpoints[broker_id] = NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack)
        return True

    def of_topic_id(self, topic_id: uuid.UUID, index: int, error_code: int) -> CurrentLeader:
        """The same for a topic that is named by its id; `NOT_KNOWN` instead of None."""
        topic = self._view.topic_by_id(topic_id)
        leader = None if topic is None else self.of(topic.name, index, error_code)
        return leader or NOT_KNOWN
