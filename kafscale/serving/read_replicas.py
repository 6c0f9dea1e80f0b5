"""The broker of each rack that consumers of a partition read from, if not from its leader (KIP-392).

Every broker can serve every partition. One of each rack is named, always the same for a partition, so that its cache
has what the rack's consumers read. Metadata lists them as the partition's replicas: Java consumers read only from
replicas that Metadata lists, and would otherwise return to the leader in vain.
"""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cluster.rankings import RANKED, RANKED_ITEM_BYTES, RANKING_BYTES, Rankings
from kafscale.cluster.view import ClusterView
from kafscale.metadata.model import NO_BROKER, TopicRecord

READ_REPLICAS_BYTES: Final = 32 * 1024 * 1024
"""Of all topics and racks: 2,000,000 partitions for three racks of up to 8 brokers, else 200,000."""

CHOICES_AT_ONCE: Final = 10_000
"""After so many partitions, times racks, `prepare` lets other tasks run."""

_BROKER_ID_BYTES: Final = 4
_ENTRY_OVERHEAD_BYTES: Final = 400


class _Chosen:
    """The broker of a rack for each partition of a topic. `nearby`: the candidates."""

    __slots__ = ("brokers", "nearby", "rack", "topic")

    def __init__(self, rack: str, topic: str, nearby: tuple[int, ...], brokers: Sequence[int]) -> None:
        self.rack = rack
        self.topic = topic
        self.nearby = nearby
        self.brokers = brokers


class ReadReplicas:
    """The choices for one view, kept by rack and topic within `limit_bytes`.

    A broker that joins or leaves changes the choices of its own rack, and only its own weights are computed.
    """

    def __init__(self, view: ClusterView, limit_bytes: int = READ_REPLICAS_BYTES) -> None:
        self._view = view
        self._generation = self._prepared = 0  # Of the brokers: that of a view without any.
        self._racks: dict[str, tuple[int, ...]] = {}
        self._rankings: dict[str, Rankings] = {}
        self._kept: ByteLimitedLru[tuple[str, str], _Chosen] = ByteLimitedLru(limit_bytes, self._forget)

    @property
    def used_bytes(self) -> int:
        """About how much memory the choices take."""
        return self._kept.used_bytes

    def one(self, topic: str, index: int, rack: str) -> int:
        """The broker of the rack that the partition's consumers there read from; `NO_BROKER` if it has none."""
        record = self._view.topic(topic)
        nearby = self._nearby(topic).get(rack)
        if record is None or nearby is None or index >= record.partition_count:
            return NO_BROKER
        return self._choice(rack, nearby, record)[index]

    def all(self, topic: TopicRecord) -> dict[str, Sequence[int]]:
        """Rack -> for each partition of the topic the broker that `one` gives."""
        return {rack: self._choice(rack, nearby, topic) for rack, nearby in self._nearby(topic.name).items()}

    async def prepare(self) -> None:
        """Choose for all topics if brokers have changed; other tasks run in between.

        What changes meanwhile is chosen when it is needed.
        """
        generation, _ = self._view.generation("")
        if generation == self._prepared:
            return
        chosen = 0
        for topic in tuple(self._view.topics()):
            chosen += topic.partition_count * len(self.all(topic))
            if chosen >= CHOICES_AT_ONCE:
                chosen = 0
                await asyncio.sleep(0)
        self._prepared = generation

    def _nearby(self, topic: str) -> Mapping[str, tuple[int, ...]]:
        """Rack -> its brokers, ascending."""
        generation, _ = self._view.generation(topic)
        if generation != self._generation:
            racks: dict[str, list[int]] = {}
            for live in self._view.brokers_to_read_from():
                if live.rack:
                    racks.setdefault(live.rack, []).append(live.broker_id)
            self._racks = {rack: tuple(nearby) for rack, nearby in racks.items()}
            self._generation = generation
        return self._racks

    def _choice(self, rack: str, nearby: tuple[int, ...], topic: TopicRecord) -> Sequence[int]:
        key, count = (rack, topic.name), topic.partition_count
        found = self._kept.get(key)
        if found is not None and found.nearby == nearby and len(found.brokers) == count:
            return found.brokers
        rankings = self._rankings.setdefault(rack, Rankings())
        brokers = array("i", rankings.preferred(topic.name, count, nearby))
        if found is not None and _size_bytes(found.nearby, found.brokers) == _size_bytes(nearby, brokers):
            found.nearby, found.brokers = nearby, brokers
        else:
            if found is not None:  # Its ranking is removed with it, which may be larger than the new one.
                self._kept.remove(key)
            self._kept.put(key, _Chosen(rack, topic.name, nearby, brokers), _size_bytes(nearby, brokers))
        return brokers

    def _forget(self, gone: _Chosen) -> None:
        self._rankings[gone.rack].forget(gone.topic)


def _size_bytes(nearby: Sequence[int], brokers: Sequence[int]) -> int:
    ranking = len(brokers) * RANKED_ITEM_BYTES + RANKING_BYTES if len(nearby) > RANKED else 0
    return _ENTRY_OVERHEAD_BYTES + len(brokers) * _BROKER_ID_BYTES + ranking
