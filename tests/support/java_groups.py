"""Members of consumer groups, each a Java consumer on its own thread, and the Java AdminClient (GroupServer.java)."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compat.tools import ROOT
from tests.support.java import CLASS_PATH, JavaError, JavaServer, compiled, java_command
from tests.support.waiting import wait_until

SOURCES = ROOT / "tests/compat/java/groups"
ASK_SECONDS = 45.0  # longer than the server's own limit, whose error is more precise

STRATEGY = "partition.assignment.strategy"
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
ROUND_ROBIN = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
STICKY = "org.apache.kafka.clients.consumer.StickyAssignor"
COOPERATIVE_STICKY = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
USER_DATA = "UserDataAssignor"

# A member of the consumer protocol has its timeouts from the group, and no assignor of its own.
CONSUMER_PROTOCOL: Mapping[str, object] = {"group.protocol": "consumer"}
CLASSIC_ONLY = ("heartbeat.interval.ms", "session.timeout.ms", STRATEGY)

# Members learn the results of heartbeats at once, and closing does not wait long for a fetch. Only
# tests of a timeout set a short one.
MEMBER_CONFIG: Mapping[str, object] = {
    "fetch.max.wait.ms": 100,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "heartbeat.interval.ms": 50,
    "retry.backoff.ms": 20,
    "session.timeout.ms": 45_000,
    "max.poll.interval.ms": 30_000,
    STRATEGY: RANGE,
}

Partition = tuple[str, int]
Event = dict[str, Any]

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed offset as clients see it."""

    offset: int
    metadata: str | None = ""
    leader_epoch: int | None = None


Offsets = Mapping[Partition, Committed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """A record that a member received. `number` orders the events of all members of one JVM."""

    number: int
    member: str
    offset: int
    value: str


@dataclass
class JavaMember:
    """A consumer that polls until it is held or closed, or an exception stops it."""

    server: JavaServer
    name: str
    _events: list[Event] = field(default_factory=list, repr=False)

    def events(self, *kinds: str) -> list[Event]:
        """Its events so far, in order; all kinds, or these.

        `assigned`, `revoked`, `lost` (`partitions`, `generation`, `member_id`, `instance_id`), `records`,
        `committed` (by commit_async), `commit_later`, `error`; of the `UserDataAssignor`: `leads`, `assignment`.
        """
        request = {"do": "events", "name": self.name, "from": len(self._events)}
        self._events += self.server.ask(request, ASK_SECONDS)["events"]
        return [event for event in self._events if not kinds or event["kind"] in kinds]

    def owned(self) -> set[Partition]:
        """The partitions it has, by its rebalance listener."""
        events = self.events("assigned", "revoked", "lost")
        if not events:
            return set()
        last = events[-1]
        gone = set() if last["kind"] == "assigned" else partition_set(last["partitions"])
        return partition_set(last["owned"]) - gone

    def wait_owned(self, partitions: Iterable[Partition]) -> None:
        expected = set(partitions)
        self.wait(lambda: self.owned() == expected, f"owns {sorted(expected)}")

    def wait_error(self, kind: str) -> str:
        """Wait for the exception that stops it; its message."""
        self.wait(lambda: self.events("error"), f"is ended by {kind}", broken=True)
        error = self.events("error")[0]
        assert error["error"] == kind, error
        return str(error["message"])

    def wait(self, condition: Any, what: str, *, broken: bool = False) -> Any:
        """`wait_until` that fails at once, with the reason, if an exception has stopped this member."""

        def checked() -> Any:
            result = condition()
            errors = self.events("error")
            assert broken or result or not errors, f"{self.name} ended: {errors}"
            return result

        return wait_until(checked, f"{self.name} {what}")

    def group_metadata(self) -> dict[str, Any]:
        """`group`, `generation`, `member_id`, `instance_id`."""
        return self._ask("group_metadata")

    def generation(self) -> int:
        return int(self.group_metadata()["generation"])

    def commit(self, offsets: Offsets | None = None) -> None:
        """commitSync of these, or of the polled offsets."""
        self._ask("commit", offsets=None if offsets is None else offset_rows(offsets))

    def commit_async(self, offsets: Offsets) -> None:
        """commitAsync; the callback is an event of kind `committed`."""
        self._ask("commit_async", offsets=offset_rows(offsets))

    def committed(self, *partitions: Partition) -> dict[Partition, Committed]:
        """Without partitions that were never committed."""
        return offsets_of(self._ask("committed", partitions=list(partitions))["offsets"])

    def position(self, partition: Partition) -> int:
        return int(self._ask("position", partition=partition)["offset"])

    def seek(self, partition: Partition, offset: int) -> None:
        self._ask("seek", partition=partition, offset=offset)

    def enforce_rebalance(self) -> None:
        self._ask("enforce_rebalance")

    def subscribe(self, *topics: str) -> None:
        self._ask("subscribe", topics=topics)

    def unsubscribe(self) -> None:
        self._ask("unsubscribe")

    def hold(self) -> None:
        """No poll any more; its heartbeats continue until `max.poll.interval.ms` is over."""
        self._ask("hold")

    def resume(self) -> None:
        self._ask("resume")

    def open_gate(self) -> None:
        """Release the leader that waits in its assignor."""
        self.server.ask({"do": "open_gate", "name": self.name}, ASK_SECONDS)

    def close(self, membership: str = "DEFAULT") -> None:
        """Close it. DEFAULT: a static member stays in the group, others leave; or LEAVE_GROUP, REMAIN_IN_GROUP."""
        self.server.ask({"do": "close", "names": [self.name], "membership": membership}, ASK_SECONDS)

    def vanish(self) -> None:
        """Stop it like a kill: its connections close and it does not leave."""
        self.hold()
        self.close("REMAIN_IN_GROUP")

    def _ask(self, what: str, **arguments: object) -> dict[str, Any]:
        return self.server.ask({"do": "ask", "name": self.name, "what": what, **arguments}, ASK_SECONDS)


@dataclass
class JavaAdmin:
    """The Java AdminClient's calls about groups. Groups' replies are dicts; errors are exceptions' names."""

    server: JavaServer
    bootstrap: str

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> dict[str, dict[str, Any]]:
        """By group id: `state`, `type`, `protocol_type`, `simple`. No states or types: all."""
        return dict(self._ask("list_groups", states=states, types=types)["groups"])

    def list_consumer_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> dict[str, dict[str, Any]]:
        """By group id: `state`, `type`, `simple`. No states or types: all."""
        return dict(self._ask("list_consumer_groups", states=states, types=types)["groups"])

    def describe(self, *groups: str, operations: bool = False) -> dict[str, dict[str, Any]]:
        """describeConsumerGroups: `state`, `type`, `assignor`, `simple`, `coordinator`, `members`; or `error`."""
        reply = self._ask("describe_consumer_groups", groups=groups, operations=operations)
        return dict(reply["groups"])

    def describe_classic(self, *groups: str, operations: bool = False) -> dict[str, dict[str, Any]]:
        """describeClassicGroups: `state`, `protocol_type`, `protocol`, `coordinator`, `members`; or `error`."""
        reply = self._ask("describe_classic_groups", groups=groups, operations=operations)
        return dict(reply["groups"])

    def offsets(
        self, groups: Mapping[str, Sequence[Partition] | None]
    ) -> dict[str, dict[Partition, Committed]]:
        """listConsumerGroupOffsets of several groups in one call; None: every partition with an offset."""
        reply = self._ask("list_offsets", groups=groups)
        return {group: offsets_of(rows) for group, rows in reply["groups"].items()}

    def alter_offsets(self, group: str, offsets: Offsets) -> dict[Partition, str | None]:
        """Each partition's error, or None."""
        return outcomes_of(self._ask("alter_offsets", group=group, offsets=offset_rows(offsets)))

    def delete_offsets(self, group: str, *partitions: Partition) -> dict[Partition, str | None]:
        """Each partition's error, or None."""
        return outcomes_of(self._ask("delete_offsets", group=group, partitions=partitions))

    def delete_groups(self, *groups: str) -> dict[str, str | None]:
        """Each group's error, or None."""
        return dict(self._ask("delete_groups", groups=groups)["groups"])

    def remove_members(self, group: str, *instances: str) -> None:
        """removeMembersFromConsumerGroup: these static members, or all members."""
        self._ask("remove_members", group=group, instances=instances or None)

    def grow_topic(self, topic: str, partitions: int) -> None:
        self._ask("grow_topic", topic=topic, partitions=partitions)

    def _ask(self, what: str, **arguments: object) -> dict[str, Any]:
        config = {"bootstrap.servers": self.bootstrap, "retry.backoff.ms": "20"}
        return self.server.ask({"do": "admin", "what": what, "config": config, **arguments}, ASK_SECONDS)


@dataclass
class JavaGroups:
    """Members, producers and an admin client for one test against one broker."""

    server: JavaServer
    bootstrap: str
    members: list[JavaMember] = field(default_factory=list)

    @property
    def admin(self) -> JavaAdmin:
        return JavaAdmin(self.server, self.bootstrap)

    def member(
        self,
        group: str | None,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        regex: str | None = None,
        assign: Sequence[Partition] | None = None,
        commit: bool = True,
        config: Mapping[str, object] | None = None,
        without: Sequence[str] = (),
    ) -> JavaMember:
        """Start a member; it joins in the background.

        `commit`: commitSync after each poll that gave records. `without`: settings to leave at their defaults.
        `pattern` is resolved by the client; `regex`, of the consumer protocol, by the broker.
        """
        # A member's id begins with its client's name and assignors sort by it: padded, the order is that of joining.
        name = f"member-{next(_numbers):06}"
        merged = {
            "bootstrap.servers": self.bootstrap,
            "client.id": name,
            **MEMBER_CONFIG,
            **({} if group is None else {"group.id": group}),
            **(config or {}),
        }
        for setting in without:
            del merged[setting]
        request = {
            "topics": topics,
            "pattern": pattern,
            "regex": regex,
            "assign": assign,
            "commit": commit,
        }
        self.server.ask({"do": "start", "name": name, "config": _texts(merged), **request}, ASK_SECONDS)
        self.members.append(JavaMember(self.server, name))
        return self.members[-1]

    def produce(self, topic: str, records: Sequence[tuple[int, str]]) -> None:
        """Rows of partition and value, all acknowledged."""
        self._ask("produce", topic=topic, records=records, config=self._producer())

    @contextlib.contextmanager
    def flow(
        self,
        topic: str,
        partitions: int,
        *,
        pause_ms: int = 5,
        config: Mapping[str, object] | None = None,
    ) -> Iterator[dict[Partition, list[str]]]:
        """A producer that runs during the block. After it, the dict has every value sent to each partition."""
        name = f"flow-{next(_numbers)}"
        sent: dict[Partition, list[str]] = {}
        request = {"name": name, "topic": topic, "partitions": partitions, "pause_ms": pause_ms}
        self._ask("start_flow", config=self._producer() | _texts(config or {}), **request)
        try:
            yield sent
        finally:
            counts = self._ask("stop_flow", name=name)["counts"]
        for partition, count in enumerate(counts):
            sent[(topic, partition)] = [f"{partition}/{number}" for number in range(count)]

    def init_transactions(self, config: Mapping[str, object]) -> None:
        self._ask("init_transactions", config=self._producer() | _texts(config))

    def processed(self) -> dict[Partition, list[Processed]]:
        """The records of all members of this test, by partition, in the order in which they received them."""
        found: dict[Partition, list[Processed]] = {}
        for member in self.members:
            for event in member.events("records"):
                for topic, partition, offset, value in event["records"]:
                    record = Processed(number=event["number"], member=member.name, offset=offset, value=value)
                    found.setdefault((topic, partition), []).append(record)
        return {key: sorted(records, key=lambda one: one.number) for key, records in found.items()}

    def wait_shared(self, members: Sequence[JavaMember], partitions: Iterable[Partition]) -> None:
        """Wait until these members have all these partitions, each one once and evenly."""
        wanted = sorted(partitions)

        def shared() -> bool:
            owned = [member.owned() for member in members]
            sizes = [len(one) for one in owned]
            return max(sizes) - min(sizes) <= 1 and sorted(itertools.chain(*owned)) == wanted

        def complete() -> bool:
            for member in members:
                assert not member.events("error"), f"{member.name} ended: {member.events('error')}"
            return shared()

        wait_until(complete, f"{len(members)} members share {len(wanted)} partitions")

    def check_owners(self) -> None:
        """Assert that no partition had two owners at any time, by the members' rebalance listeners."""
        events = [
            (event["number"], member.name, event)
            for member in self.members
            for event in member.events("assigned", "revoked", "lost")
        ]
        owners: dict[Partition, str] = {}
        for _, name, event in sorted(events, key=lambda one: one[0]):
            for key in partition_set(event["partitions"]):
                if event["kind"] == "assigned":
                    assert key not in owners, f"{key} is given to {name} while {owners[key]} has it"
                    owners[key] = name
                else:
                    assert owners.pop(key, None) == name, f"{name} gives up {key}, which it has not"

    def wait_processed(self, sent: Mapping[Partition, Sequence[str]]) -> None:
        """Wait for every record, and check that each was processed once and in order. None is lost or repeated."""

        def counts() -> dict[Partition, int]:
            return {key: len(records) for key, records in self.processed().items()}

        wanted = {key: len(values) for key, values in sent.items() if values}
        wait_until(
            lambda: all(counts().get(key, 0) >= count for key, count in wanted.items()), "every record"
        )
        values = {key: [one.value for one in records] for key, records in self.processed().items()}
        assert values == {key: list(values) for key, values in sent.items() if values}

    def close(self, *members: JavaMember, membership: str = "DEFAULT") -> None:
        """Close several at the same time."""
        names = [member.name for member in members]
        self.server.ask({"do": "close", "names": names, "membership": membership}, ASK_SECONDS)

    def _producer(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, "linger.ms": "0"}

    def _ask(self, do: str, **arguments: object) -> dict[str, Any]:
        return self.server.ask({"do": do, **arguments}, ASK_SECONDS)


@contextlib.contextmanager
def group_server(folder: Path) -> Iterator[JavaServer]:
    """A JVM for members and admin calls, for the time of the block."""
    classes = compiled(*sorted(SOURCES.glob("*.java")))
    command = java_command("GroupServer")
    command[command.index(CLASS_PATH)] = f"{CLASS_PATH}:{classes}"
    server = JavaServer(command, folder / "group-server.err")
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def groups_on(server: JavaServer, bootstrap: str) -> Iterator[JavaGroups]:
    """Groups for one test; remaining members are closed."""
    groups = JavaGroups(server, bootstrap)
    try:
        yield groups
    finally:
        # Members that an exception stopped may not close cleanly either; the test knows the reason.
        with contextlib.suppress(JavaError):
            groups.close(*groups.members, membership="LEAVE_GROUP")


def partitions_of(topic: str, count: int) -> list[Partition]:
    """The first `count` partitions of a topic."""
    return [(topic, number) for number in range(count)]


def partition_set(rows: Iterable[Sequence[Any]]) -> set[Partition]:
    """From rows of topic and number."""
    return {(topic, number) for topic, number in rows}


def offset_rows(offsets: Offsets) -> list[list[Any]]:
    return [[*key, one.offset, one.metadata, one.leader_epoch] for key, one in offsets.items()]


def offsets_of(rows: Iterable[Sequence[Any]]) -> dict[Partition, Committed]:
    return {
        (topic, partition): Committed(offset=offset, metadata=metadata, leader_epoch=epoch)
        for topic, partition, offset, metadata, epoch in rows
    }


def outcomes_of(reply: Mapping[str, Any]) -> dict[Partition, str | None]:
    return {(topic, partition): error for topic, partition, error in reply["results"]}


def _texts(config: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in config.items()}
