"""Consumers of five kinds, each alone in its group, with one surface: their reads, and the events they report."""

import contextlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.franz_go import FranzMember
from tests.support.group_members import MEMBERS, GroupMember
from tests.support.java_groups import JavaGroups, JavaMember
from tests.support.ledger import Place

CONSUMERS = ("java", "librdkafka", "kafka-python", "aiokafka", "franz-go")
RACK_CONSUMERS = tuple(client for client in CONSUMERS if client != "aiokafka")  # which knows no racks
_ENDINGS = ("revoked", "lost")


class ClientConsumer(ABC):
    """Reads from the start of its topics, and commits what it handled by itself."""

    @abstractmethod
    def read(self) -> Mapping[Place, Sequence[int]]:
        """The offsets it has read, in that order. Raises AssertionError if the consumer has failed."""

    @abstractmethod
    def taken_away(self) -> list[Any]:
        """Every time that partitions were revoked from it."""


class _PythonConsumer(ClientConsumer):
    def __init__(self, member: GroupMember) -> None:
        self._member = member

    def read(self) -> Mapping[Place, Sequence[int]]:
        if self._member.failure is not None:
            raise AssertionError(f"{self._member} has failed") from self._member.failure
        found: dict[Place, list[int]] = defaultdict(list)
        for one in self._member.handled:
            found[one.topic, one.partition].append(one.offset)
        return found

    def taken_away(self) -> list[Any]:
        return [change for change in self._member.changes if change.kind in _ENDINGS and change.partitions]


class _JavaConsumer(ClientConsumer):
    def __init__(self, member: JavaMember) -> None:
        self._member = member

    def read(self) -> Mapping[Place, Sequence[int]]:
        errors = self._member.events("error")
        assert not errors, errors
        found: dict[Place, list[int]] = defaultdict(list)
        for event in self._member.events("records"):
            for topic, partition, offset, _ in event["records"]:
                found[topic, partition].append(offset)
        return found

    def taken_away(self) -> list[Any]:
        return [event for event in self._member.events(*_ENDINGS) if event["partitions"]]


class _FranzConsumer(ClientConsumer):
    def __init__(self, member: FranzMember) -> None:
        self._member = member

    def read(self) -> Mapping[Place, Sequence[int]]:
        found: dict[Place, list[int]] = defaultdict(list)
        for row in self._member.events("record"):
            found[row["topic"], row["partition"]].append(row["offset"])
        return found

    def taken_away(self) -> list[Any]:
        return [
            event for event in self._member.events() if event["event"] in _ENDINGS and event["partitions"]
        ]


@contextlib.contextmanager
def client_consumer(
    client: str,
    cluster: Any,
    group: str,
    topics: Sequence[str],
    *,
    java: JavaGroups,
    folder: Path,
    rack: str | None = None,
    **settings: Any,
) -> Iterator[ClientConsumer]:
    """A consumer of that kind (`CONSUMERS`) in the block. Settings have Java's names, with `_` for `.`.

    Of franz-go they are not: it has its own defaults.
    """
    match client:
        case "java":
            rack_config = {} if rack is None else {"client.rack": rack}
            config = {name.replace("_", "."): value for name, value in settings.items()}
            yield _JavaConsumer(java.member(group, topics, config=rack_config | config))
        case "franz-go":
            flags = {} if rack is None else {"rack": rack}
            with FranzMember(folder, cluster, group, ",".join(topics), autocommit="true", **flags) as franz:
                yield _FranzConsumer(franz)
        case _:
            if rack is not None:
                settings = {"client_rack": rack, **settings}
            with MEMBERS[client](cluster.bootstrap, group, *topics, **settings) as member:
                yield _PythonConsumer(member)
