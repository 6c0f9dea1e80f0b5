"""Consumers of four kinds that say in which rack they are, each alone in a group of its own, seen alike."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.franz_go import FranzMember
from tests.support.group_members import MEMBERS, GroupMember
from tests.support.java_groups import JavaGroups, JavaMember

RACK_CLIENTS = ("java", "librdkafka", "kafka-python", "franz-go")
IMPATIENT_MS = 200  # what a client waits with before it connects again


class RackReader(ABC):
    """What a consumer has read. It commits what it handled by itself."""

    @abstractmethod
    def offsets(self, topic: str, partition: int) -> list[int]:
        """In the order in which it read them."""

    def count(self, topic: str, partitions: int) -> int:
        return sum(len(self.offsets(topic, partition)) for partition in range(partitions))


class _PythonReader(RackReader):
    def __init__(self, member: GroupMember) -> None:
        self._member = member

    def offsets(self, topic: str, partition: int) -> list[int]:
        if self._member.failure is not None:
            raise AssertionError(f"{self._member} has failed") from self._member.failure
        return self._member.offsets_handled(topic, partition)


class _JavaReader(RackReader):
    def __init__(self, member: JavaMember) -> None:
        self._member = member

    def offsets(self, topic: str, partition: int) -> list[int]:
        errors = self._member.events("error")
        assert not errors, errors
        rows = [row for event in self._member.events("records") for row in event["records"]]
        return [offset for name, index, offset, _ in rows if (name, index) == (topic, partition)]


class _FranzReader(RackReader):
    def __init__(self, member: FranzMember) -> None:
        self._member = member

    def offsets(self, topic: str, partition: int) -> list[int]:
        return [
            row["offset"]
            for row in self._member.events("record")
            if (row["topic"], row["partition"]) == (topic, partition)
        ]


@contextlib.contextmanager
def rack_reader(
    client: str, cluster: Any, group: str, topic: str, rack: str, *, java: JavaGroups, folder: Path
) -> Iterator[RackReader]:
    """A consumer of that kind (`RACK_CLIENTS`) that reads the topic from its start in the block."""
    match client:
        case "java":
            config = {"client.rack": rack, "reconnect.backoff.max.ms": IMPATIENT_MS}
            yield _JavaReader(java.member(group, [topic], config=config))
        case "franz-go":
            with FranzMember(folder, cluster, group, topic, rack=rack, autocommit="true") as member:
                yield _FranzReader(member)
        case _:
            settings: dict[str, Any] = {"client_rack": rack, "reconnect_backoff_max_ms": IMPATIENT_MS}
            with MEMBERS[client](cluster.bootstrap, group, topic, **settings) as member:
                yield _PythonReader(member)
