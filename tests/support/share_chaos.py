"""A share group whose members, each a process that says what it does, are in trouble."""

import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kafscale.protocol.api_messages import DescribeShareGroupOffsetsRequest
from kafscale.protocol.share_group_messages import DescribeShareGroupOffsetsResponse
from tests.support import wire
from tests.support.broker import KafscaleBroker
from tests.support.cluster import AWAY, Cluster
from tests.support.consumer_group_members import alter_group_config
from tests.support.group_wire import connect_strictly
from tests.support.ledger import Record
from tests.support.member_chaos import MemberChaos
from tests.support.share_checker import Delivery, ShareEvidence
from tests.support.share_clients import ShareClient, produce
from tests.support.share_journal import ShareJournal
from tests.support.waiting import wait_until

LOCK_S = 5.0
LONGEST_PAUSE_S = LOCK_S + 2  # the records of a stopped member may be another's by then
DELIVERIES = 10  # so many that a good record does not use them up by the troubles of its members
SHARE_SETTINGS: Mapping[str, object] = {
    "group_share_heartbeat_interval_ms": 300,
    "group_share_min_heartbeat_interval_ms": 100,
    "group_share_min_session_timeout_ms": 500,
    "group_share_record_lock_duration_ms": int(LOCK_S * 1000),
    "group_share_min_record_lock_duration_ms": 1000,
    "group_share_delivery_count_limit": DELIVERIES,
}
OF_GROUP: Mapping[str, object] = {"share.auto.offset.reset": "earliest", "share.session.timeout.ms": 1500}
# By producer: the pause after a record to each partition. One record in a hundred is poison.
PAUSES_S: Mapping[str, float] = {"good-1": 0.03, "poison-1": 3.0, "bad-1": 3.0, "again-1": 1.0}
WORK_MS = 30
COUNT = 50
DESCRIBE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareScenario:
    """The clients whose members share the topic."""

    group: str
    topic: str
    clients: Sequence[str]
    members: tuple[int, int] = (2, 4)


class ShareChaosMember(ShareClient):
    """A member of the group, with the journal of what it has said."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.journal = ShareJournal(self.name, self.log_path)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def leave(self) -> None:
        """SIGTERM: it finishes what it has, leaves the group and exits."""
        wait_until(self._has_started, f"{self.name} understands signals")
        self.send_signal(signal.SIGTERM)

    def _has_started(self) -> bool:
        self.is_running()
        self.journal.read()
        return self.journal.has_started


class ShareChaos(MemberChaos[ShareChaosMember]):
    """Troubles a share group on a broker, or on the brokers of a cluster. `troubles`: what else happens, by name."""

    def __init__(
        self,
        servers: KafscaleBroker | Cluster,
        scenario: ShareScenario,
        folder: Path,
        generator: random.Random,
        troubles: Mapping[str, Callable[[], None]] | None = None,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        super().__init__(
            folder,
            generator,
            members=scenario.members,
            pause_s=(0.5, longest_pause_s),
            troubles=troubles,
        )
        self._servers = servers
        self._scenario = scenario

    def new_member(self, number: int) -> ShareChaosMember:
        client = self._scenario.clients[(number - 1) % len(self._scenario.clients)]
        return self._member(client, work_ms=WORK_MS)

    def has_begun(self, member: ShareChaosMember) -> bool:
        member.journal.read()
        return bool(member.journal.deliveries)

    def has_progressed(self) -> bool:
        return sum(member.journal.read() for member in self.all_members) > 0

    def may_leave(self, member: ShareChaosMember) -> bool:
        """A consumer of librdkafka 2.16 that is closed before it has its first assignment never ends."""
        return self.has_begun(member)

    def check_left(self, member: ShareChaosMember) -> None:
        member.journal.read()
        assert member.journal.has_ended, f"{member.name} did not end in order\n{member.log_tail()}"

    def check_servers(self) -> None:
        # A cluster's brokers are watched by those that trouble them.
        if not isinstance(self._servers, Cluster):
            assert self._servers.exit_code is None, f"the broker ended by itself\n{self._servers.log_tail()}"

    def configure(self) -> None:
        """The group reads every record, from the first one on, and misses its members soon."""
        with connect_strictly(_running(self._servers)[0]) as connection:
            for name, value in OF_GROUP.items():
                error = alter_group_config(connection, self._scenario.group, name, value)
                assert error == 0, f"{name}: error {error}"

    def wait_finished(self, ends: Mapping[int, int]) -> None:
        """Wait until every record is finished and the group says so: its starts are at the ends, and no lag."""
        wanted = {partition: (end, 0) for partition, end in ends.items()}
        found: list[Any] = []

        def is_finished() -> bool:
            self._check_alive()
            found[:] = [progress(_running(self._servers), self._scenario.group, self._scenario.topic)]
            return bool(found[0] == wanted)

        try:
            wait_until(is_finished, "every record is finished")
        except AssertionError as error:
            error.add_note(f"start and lag: {found}, ends: {dict(ends)}")
            raise

    def _late_deliveries(self, partitions: int) -> list[Delivery]:
        """The deliveries to a new member once all is finished, but for one new record in each partition."""
        with self._member(self._scenario.clients[0]) as member:
            last = [f"good-last-{one}" for one in range(partitions)]
            produce(self._servers, self._scenario.topic, last, partitions)

            def received() -> bool:
                member.is_running()
                member.journal.read()
                return sum("last" in one.value for one in member.journal.deliveries) >= partitions

            wait_until(received, "the last records")
        return [one for one in member.journal.deliveries if "last" not in one.value]

    def evidence(self, log: Mapping[int, Sequence[Record]]) -> ShareEvidence:
        """All of it, after all members have left. `log`: each partition's records."""
        self.has_progressed()
        return ShareEvidence(
            deliveries=[one for member in self.all_members for one in member.journal.deliveries],
            log=log,
            pauses=self.pauses,
            limit=DELIVERIES,
            lock_s=LOCK_S,
            late=self._late_deliveries(len(log)),
        )

    def errors(self) -> dict[str, int]:
        """The errors of acknowledgements, cut, and how often they came."""
        found: dict[str, int] = {}
        for member in self.all_members:
            for one in member.journal.deliveries:
                if one.error:
                    found[one.error[:100]] = found.get(one.error[:100], 0) + 1
        return found

    def _member(self, client: str, **options: Any) -> ShareChaosMember:
        return ShareChaosMember(
            self._folder,
            client,
            self._servers,
            self._scenario.group,
            self._scenario.topic,
            count=COUNT,
            **options,
        )


def progress(brokers: Sequence[KafscaleBroker], group: str, topic: str) -> dict[int, tuple[int, int]] | None:
    """Start offset and lag of each partition, from the group's coordinator; None while none answers."""
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=group, topics=None)])
    for broker in brokers:
        try:
            with wire.connect(broker) as connection:
                (found,) = connection.call(
                    request, DescribeShareGroupOffsetsResponse, DESCRIBE_VERSION
                ).groups
        except AWAY:
            continue
        if found.error_code == 0:
            return {
                part.partition_index: (part.start_offset, part.lag)
                for one in found.topics
                if one.topic_name == topic
                for part in one.partitions
            }
    return None


def _running(servers: KafscaleBroker | Cluster) -> list[KafscaleBroker]:
    if isinstance(servers, Cluster):
        return [servers.brokers[one] for one in servers.live]
    return [servers]
