"""Java members move to the consumer protocol and back, one by one, while the group's coordinator is killed.

KAFSCALE_TEST_SEED repeats a run's choices.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.compat.tools import java_missing
from tests.integration.test_cluster_chaos import MISSING, chaos_run
from tests.integration.test_group_chaos import PARTITIONS, SEED, SETTINGS, summary
from tests.support.cluster_chaos import TOPIC, ChaosRun
from tests.support.group_beginning import commit_beginning
from tests.support.group_chaos import JAVA_CONSUMER_PROTOCOL, MemberProcess, Scenario
from tests.support.group_journal import Assigned, Ended, Event, Revoked
from tests.support.group_observer import Observer
from tests.support.group_witness import Evidence, check
from tests.support.waiting import PATIENCE_SEC, wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.skipif(java_missing() is not None, reason=str(java_missing())),
    pytest.mark.timeout(1800),
]

GROUP = "group"
MEMBERS = 4
SESSION_MS = 10_000  # longer than it takes until another broker is the coordinator
OF_CONSUMERS = "uniform"


@dataclass
class Rolling:
    """The members, and what they were before. `assignor`: of the classic members."""

    run: ChaosRun
    folder: Path
    assignor: str
    generator: random.Random

    def __post_init__(self) -> None:
        self.all_members: list[MemberProcess] = []
        self.members = [self._start("java") for _ in range(MEMBERS)]
        self.wait_assigned()

    def change_all(self, client: str) -> None:
        """One member after the other makes room for one of that protocol, every other one while a broker dies."""
        first_killed = self.generator.randrange(2)
        for number in range(MEMBERS):
            is_killed = number % 2 == first_killed
            killed = self.run.cluster.coordinator(GROUP) if is_killed else None
            old = self.members[number]
            old.leave()
            if killed is not None:
                self.run.scene.a_while(0.0, 0.5)
                self._kill(killed)
            assert old.wait_exit(PATIENCE_SEC) == old.clean_exit_code(), old.log_tail()
            self.members[number] = self._start(client)
            if killed is not None:
                self.run.scene.a_while(0.0, 2.0)
                self.run.scene.start(killed)
            self.wait_assigned()
            self.run.all_progress()

    def wait_assigned(self) -> None:
        """Wait until each member has partitions, and they have all together."""

        def assigned() -> bool:
            owned = [_owned(self._events(member)) for member in self.members]
            return all(owned) and sorted(one for part in owned for one in part) == list(range(PARTITIONS))

        wait_until(assigned, "the members share the partitions")

    def stop(self) -> None:
        """All leave."""
        for member in self.members:
            member.leave()
        for member in self.members:
            assert member.wait_exit(PATIENCE_SEC) == member.clean_exit_code(), member.log_tail()

    def journals(self) -> Mapping[str, list[Event]]:
        """All events of each member."""
        for member in self.all_members:
            member.journal.read()
            assert isinstance(member.journal.events[-1], Ended), member.log_tail()
        return {member.name: member.journal.events for member in self.all_members}

    def _events(self, member: MemberProcess) -> list[Event]:
        assert member.exit_code is None, f"{member.name} ended by itself\n{member.log_tail()}"
        member.journal.read()
        return member.journal.events

    def _kill(self, broker_id: int) -> None:
        self.run.say(f"broker {broker_id}, the coordinator, is killed")
        self.run.cluster.kill(broker_id)

    def _start(self, client: str) -> MemberProcess:
        scenario = Scenario(
            group=GROUP,
            topic=TOPIC,
            clients=(client,),
            assignor=OF_CONSUMERS if client == JAVA_CONSUMER_PROTOCOL else self.assignor,
            session_timeout_ms=SESSION_MS,
        )
        name = f"{client}-{len(self.all_members) + 1}"
        member = MemberProcess(name, self.folder, client=client, broker=self.run.cluster, scenario=scenario)
        self.run.say(f"{name} joins")
        self.all_members.append(member)
        member.start()
        return member


def _owned(events: list[Event]) -> set[int]:
    owned: set[int] = set()
    for event in events:
        match event:
            case Assigned():
                owned = set(event.owned)
            case Revoked():
                owned -= set(event.partitions)
    return owned


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_rolling_change_while_coordinators_are_killed(tmp_path: Path, assignor: str) -> None:
    print(f"KAFSCALE_TEST_SEED={SEED}")
    settings = {**SETTINGS, "group_consumer_session_timeout_ms": SESSION_MS}
    with chaos_run(tmp_path, f"rolling change {assignor}", settings=settings) as (run, _):
        connect = partial(run.cluster.connected_to_coordinator, GROUP)
        run.start_producer()
        beginning = commit_beginning(connect, GROUP, TOPIC, PARTITIONS)
        observer = Observer(connect, GROUP, TOPIC, PARTITIONS)
        observer.start()
        rolling = Rolling(run, tmp_path / "members", assignor, random.Random(f"{SEED} {assignor}"))
        try:
            rolling.change_all(JAVA_CONSUMER_PROTOCOL)
            rolling.change_all("java")
            run.finish().check()
            log = {partition: run.final[TOPIC, partition] for partition in range(PARTITIONS)}
            end = {partition: records[-1][0] + 1 for partition, records in log.items()}
            wait_until(lambda: observer.last() == end, f"all is committed up to {end}")
            rolling.stop()
        finally:
            observer.stop()
            for member in rolling.all_members:
                member.close()
    evidence = Evidence(
        journals={"beginning": beginning, **rolling.journals()},
        log=log,
        acknowledged=run.history.acknowledged(),
        observations=observer.observations,
    )
    print(summary(evidence))
    check(evidence)
