"""Sessions of raw clients that start at one broker and go on at its successor: producers' sequences, a group."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from tests.support import wire
from tests.support.cluster_wire import NONE, NOT_LEADER_OR_FOLLOWER
from tests.support.group_apis import Committed, committed
from tests.support.group_wire import NOT_COORDINATOR, Member, RawGroup, connect_strictly
from tests.support.waiting import wait_until
from tests.support.zoned_cluster import ZonedCluster

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
MANY_PRODUCERS = 300  # more than a partition's record has: the others are in a checkpoint
REMEMBERED_BATCHES = 5
NOT_YET = (wire.COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR)


class IdempotentSession:
    """One producer id that writes to one partition, led by any broker, one record a batch."""

    def __init__(self, cluster: ZonedCluster, topic: str, partition: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        with wire.connect(cluster.cluster.any_live()) as connection:
            self._producer_id, _ = wire.init_producer_id(connection)
        self._next = 0
        self._offsets: dict[int, int] = {}  # sequence number -> offset

    def begin(self) -> None:
        """Some acknowledged batches, and one whose reply is not read: another broker confirms its publication."""
        with self._at_leader() as connection:
            for sequence in range(self._next, self._next + 2 * REMEMBERED_BATCHES):
                self._expect(connection, sequence, NONE)
            self._next += 2 * REMEMBERED_BATCHES
            end = max(self._offsets.values()) + 1
            request = wire.produce_request(self._topic, {self._partition: self._batch(self._next)})
            connection.send(request, wire.PRODUCE_VERSION)
            with wire.connect(self._cluster.others(self._topic, self._partition)[0]) as other:
                wait_until(lambda: wire.read_all(other, self._topic, self._partition, end), "it is published")
        self._offsets[self._next] = end

    def go_on(self) -> None:
        """At the current leader: retries are recognised, the next batch is accepted."""
        with self._at_leader() as connection:
            newest = self._next
            for sequence in range(newest + 1 - REMEMBERED_BATCHES, newest + 1):
                self._expect(connection, sequence, NONE)
            self._expect(connection, newest - REMEMBERED_BATCHES, DUPLICATE_SEQUENCE_NUMBER)
            self._expect(connection, newest + 2, OUT_OF_ORDER_SEQUENCE_NUMBER)
            self._expect(connection, newest + 1, NONE)
            self._next = newest + 2

    def end(self) -> None:
        """A new epoch starts at 0 and fences this one. Every record is stored once, at its acknowledged offset."""
        with self._at_leader() as connection:
            assert self._send(connection, 1, epoch=1).error_code == OUT_OF_ORDER_SEQUENCE_NUMBER
            assert self._send(connection, 0, epoch=1).error_code == NONE
            assert self._send(connection, self._next).error_code == INVALID_PRODUCER_EPOCH
            stored = wire.read_all(connection, self._topic, self._partition)
        mine = f"{self._producer_id}/".encode()
        values = {offset: value for offset, value in stored if value is not None and value.startswith(mine)}
        expected = {offset: self._value(sequence, 0) for sequence, offset in self._offsets.items()}
        assert {offset: value for offset, value in values.items() if value.endswith(b"/0")} == expected

    def _at_leader(self) -> contextlib.AbstractContextManager[wire.Wire]:
        return wire.connect(self._cluster.leader(self._topic, self._partition))

    def _value(self, sequence: int, epoch: int) -> bytes:
        return b"%d/%d/%d" % (self._producer_id, sequence, epoch)

    def _batch(self, sequence: int, epoch: int = 0) -> bytes:
        return wire.batch(
            [self._value(sequence, epoch)],
            producer_id=self._producer_id,
            producer_epoch=epoch,
            sequence=sequence,
        )

    def _send(self, connection: wire.Wire, sequence: int, epoch: int = 0) -> Any:
        return wire.produce(connection, self._topic, self._partition, self._batch(sequence, epoch))

    def _expect(self, connection: wire.Wire, sequence: int, code: int) -> None:
        answer = self._send(connection, sequence)
        offset = (
            answer.base_offset if code != NONE else self._offsets.setdefault(sequence, answer.base_offset)
        )
        assert (answer.error_code, answer.base_offset) == (code, offset), f"sequence {sequence}"


class ManyProducers:
    """Very many producers, one batch of each, that all send it again to the current leader."""

    def __init__(self, cluster: ZonedCluster, topic: str, partition: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        with wire.connect(cluster.cluster.any_live()) as connection:
            ids = [wire.init_producer_id(connection)[0] for _ in range(MANY_PRODUCERS)]
        self._batches = [
            wire.batch([b"of %d" % one], producer_id=one, producer_epoch=0, sequence=0) for one in ids
        ]
        self._offsets = self._send_all()

    def check(self) -> None:
        """Every one of them is recognised."""
        assert self._send_all() == self._offsets

    def _send_all(self) -> list[int]:
        with wire.connect(self._cluster.leader(self._topic, self._partition)) as connection:
            for batch in self._batches:
                request = wire.produce_request(self._topic, {self._partition: batch})
                connection.send(request, wire.PRODUCE_VERSION)
            answers = [wire.receive_produce(connection)[1] for _ in self._batches]
        assert {one.error_code for one in answers} == {NONE}
        return [one.base_offset for one in answers]


class GroupSession:
    """Two members of a stable group, which may continue with any coordinator, in the same generation."""

    def __init__(self, cluster: ZonedCluster, coordinator: int, stack: contextlib.ExitStack) -> None:
        self._cluster = cluster
        self._stack = stack
        self._place = (cluster.topic(1), 0)
        broker = cluster.brokers[coordinator]
        connection = stack.enter_context(connect_strictly(broker))
        self._group = RawGroup(broker, connection, cluster.group_at(coordinator), stack)
        self._members = self._group.stable(2)
        self._commits = itertools.count(1)
        self._committed = 0
        self.begin()

    def begin(self) -> None:
        """A commit that must not be lost."""
        self._commit(self._members[0])

    def go_on(self) -> None:
        """Same generation, same assignments, the commit is there, and the next one is accepted."""
        for member in self._members:
            member.wire = self._stack.enter_context(connect_strictly(self._new_coordinator()))
            wait_until(lambda: member.heartbeat() not in NOT_YET, "the coordinator is ready")  # noqa: B023
            assert member.heartbeat() == NONE
            reply = member.sync()
            assert (reply.error_code, bytes(reply.assignment)) == (NONE, member.id.encode())
        first, second = self._members
        wanted = {self._place: Committed(offset=self._committed)}
        assert committed(first.wire, self._group.name) == wanted
        self._commit(second)

    def end(self) -> None:
        """Both leave: tools that describe all groups cannot read their assignments."""
        assert [member.leave() for member in self._members] == [NONE, NONE]

    def _commit(self, member: Member) -> None:
        self._committed = next(self._commits)
        assert member.commit({self._place: self._committed}) == {self._place: NONE}

    def _new_coordinator(self) -> Any:
        found = wait_until(
            lambda: max(self._cluster.coordinator(self._group.name), 0),
            f"{self._group.name} has a coordinator",
        )
        return self._cluster.brokers[found]


class StaleLeader:
    """Requests that wait in a sleeping leader's socket while another one leads."""

    def __init__(self, cluster: ZonedCluster, sleeper: int) -> None:
        self._cluster = cluster
        self.topic = cluster.topic(3)
        self._partition = cluster.led_by(self.topic, sleeper)
        broker = cluster.brokers[sleeper]
        self._connection = wire.Wire(broker.host, broker.port, 30.0)
        self._producer_id, _ = wire.init_producer_id(self._connection)
        answer = wire.produce(self._connection, self.topic, self._partition, self._batch(0))
        assert (answer.error_code, answer.base_offset) == (NONE, 0)

    def _batch(self, sequence: int) -> bytes:
        return wire.batch(
            [b"sequence %d" % sequence],
            producer_id=self._producer_id,
            producer_epoch=0,
            sequence=sequence,
        )

    def send_while_it_sleeps(self) -> None:
        """One record of the producer, and one without a producer id, to the former leader."""
        for records in (self._batch(1), wire.batch([b"only to the old leader"])):
            request = wire.produce_request(self.topic, {self._partition: records})
            self._connection.send(request, wire.PRODUCE_VERSION)

    def send_again(self) -> None:
        """The producer's record, to the current leader."""
        leader = self._cluster.leader(self.topic, self._partition)
        with wire.connect(leader) as connection:
            answer = wire.produce(connection, self.topic, self._partition, self._batch(1))
        assert (answer.error_code, answer.base_offset) == (NONE, 1)

    def check(self) -> None:
        """The old leader, awake again, has acknowledged nothing, and has stored nothing of it."""
        try:
            for _ in range(2):
                _, answer = wire.receive_produce(self._connection)
                told = answer.error_code, answer.base_offset
                assert told == (NOT_LEADER_OR_FOLLOWER, -1), f"error and offset {told}"
        except wire.ConnectionEndedError:
            pass  # it may end the connection as well: that promises nothing either
        finally:
            self._connection.close()
        for broker in self._cluster.brokers.values():
            with wire.connect(broker) as connection:
                wait_until(
                    lambda: len(wire.read_all(connection, self.topic, self._partition)) == 2,
                    f"{broker.name} has both records",
                )
                assert wire.read_all(connection, self.topic, self._partition) == [
                    (0, b"sequence 0"),
                    (1, b"sequence 1"),
                ]


class RawSessions:
    """All of them, with one broker, which is to be replaced."""

    def __init__(self, cluster: ZonedCluster, broker_id: int, stack: contextlib.ExitStack) -> None:
        topic = cluster.topic(3)
        partition = cluster.led_by(topic, broker_id)
        self.topics = (topic,)
        self._group = GroupSession(cluster, broker_id, stack)
        self._idempotent = IdempotentSession(cluster, topic, partition)
        self._many = ManyProducers(cluster, topic, partition)
        self._idempotent.begin()

    def go_on(self) -> None:
        """With the brokers that have taken its place."""
        self._group.go_on()
        self._idempotent.go_on()
        self._many.check()

    def end(self) -> None:
        """Check the outcome of all sessions."""
        self._idempotent.end()
        self._group.end()


@contextlib.contextmanager
def raw_sessions(cluster: ZonedCluster, broker_id: int) -> Iterator[RawSessions]:
    """Sessions with that broker; their connections end with the block."""
    with contextlib.ExitStack() as stack:
        yield RawSessions(cluster, broker_id, stack)
