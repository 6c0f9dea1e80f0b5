"""One consumer group told event by event: what it answers, stores and asks for, and when the store has it."""

import uuid
from collections.abc import Mapping

from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.groups import any_group
from kafscale.groups.assignors.registry import ASSIGNORS
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.consumer.consumer_group import ConsumerGroup, ConsumerPolicy
from kafscale.groups.consumer.events import ConsumerHeartbeatReceived
from kafscale.groups.effects import Answer, Content, Heartbeated
from kafscale.groups.events import Stored, TimePassed
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.modern.events import Assigned, Loaded, TopicIdAndCount, Topics, topic_ids
from kafscale.protocol.error_codes import ErrorCode

SESSION_MS = 45_000
POLICY = ConsumerPolicy(
    session_timeout_ms=SESSION_MS, heartbeat_interval_ms=5000, max_size=3, assignors=("uniform", "range")
)
ORDERS, PAYMENTS = uuid.UUID(int=1), uuid.UUID(int=2)


def partitions(*indexes: int, topic_id: uuid.UUID = ORDERS) -> Assignment:
    """An assignment of these partitions of one topic."""
    return {topic_id: frozenset(indexes)} if indexes else {}


class ConsumerStory:
    """The group and its world. `answers` by reply id; `unstored`: what is to be stored, in order."""

    def __init__(self) -> None:
        self.group = ConsumerGroup("group", POLICY, 0)
        self.now_ms = 1_000
        self.topics: dict[str, TopicIdAndCount] = {"orders": TopicIdAndCount(ORDERS, 4)}
        self.answers: dict[int, Content] = {}
        self.unstored: list[StoreChanges] = []
        self.stored: list[StoreChanges] = []
        self.to_assign = False
        self._reply_id = 0

    def apply(self, event: any_group.AnyEvent) -> None:
        """Apply the event, and keep its effects."""
        for effect in any_group.apply(self.group, event):
            match effect:
                case Answer():
                    assert effect.reply_id not in self.answers
                    self.answers[effect.reply_id] = effect.content
                case StoreChanges():
                    self.unstored.append(effect)
                case Assign():
                    assert not self.to_assign
                    self.to_assign = True

    def next_reply_id(self) -> int:
        """The id of the next request."""
        self._reply_id += 1
        return self._reply_id

    def send(
        self,
        member_id: str,
        epoch: int,
        *,
        names: str | None = None,
        regex: str | None = None,
        resolved: str | None = None,
        owned: Assignment | None = None,
        instance_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        assignor: str | None = None,
    ) -> int:
        """A heartbeat; returns its reply id. `names`: topics, separated by spaces. A join says all by itself."""
        reply_id = self.next_reply_id()
        if epoch == 0:
            names = "orders" if names is None and regex is None else names
            owned = {} if owned is None else owned
            rebalance_timeout_ms = 30_000 if rebalance_timeout_ms == -1 else rebalance_timeout_ms
        self.apply(
            ConsumerHeartbeatReceived(
                now_ms=self.now_ms,
                reply_id=reply_id,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                rack_id=None,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=None if names is None else frozenset(names.split()),
                subscribed_topic_regex=regex,
                resolved=None if resolved is None else frozenset(resolved.split()),
                server_assignor=assignor,
                owned=owned,
                client_id="client",
                client_host="/127.0.0.1",
            )
        )
        return reply_id

    def heartbeat(self, member_id: str, epoch: int, **said: object) -> Heartbeated:
        """A heartbeat whose answer comes as soon as what waits is done."""
        reply_id = self.send(member_id, epoch, **said)  # type: ignore[arg-type]
        self.finish()
        return self.answer(reply_id)

    def answer(self, reply_id: int) -> Heartbeated:
        """The answer to a heartbeat."""
        content = self.answers[reply_id]
        assert isinstance(content, Heartbeated)
        return content

    def refused(self, member_id: str, epoch: int, **said: object) -> ErrorCode:
        """The error of a heartbeat that is refused at once, and changes nothing."""
        before = dict(self.group.members)
        reply_id = self.send(member_id, epoch, **said)  # type: ignore[arg-type]
        error_code = self.answer(reply_id).error_code
        assert error_code is not ErrorCode.NONE
        assert self.group.members == before
        assert not self.unstored
        return error_code

    def store(self) -> None:
        """Everything that was to be stored is durable."""
        while self.unstored:
            self.stored.append(self.unstored.pop(0))
            self.apply(Stored(now_ms=self.now_ms, store_id=self.stored[-1].store_id))

    def target(self, **given: object) -> Assigned:
        """The target of now, as it is computed."""
        group = self.group
        topics: Topics = {
            name: topic for name, topic in self.topics.items() if name in group.subscribed_topics()
        }
        members = {
            member_id: Subscription(
                topic_ids=topic_ids(topics, group.topics_of(member)),
                instance_id=member.instance_id,
                owned=group.target_of(member_id) or member.assigned,
            )
            for member_id, member in sorted(group.members.items())
        }
        counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
        target: Mapping[str, Assignment] = ASSIGNORS[group.assignor](members, counts)
        return Assigned(now_ms=self.now_ms, epoch=group.group_epoch, target=target, topics=topics)

    def assign(self) -> None:
        """The target that was asked for is computed."""
        assert self.to_assign
        self.to_assign = False
        self.apply(self.target())

    def finish(self) -> None:
        """Targets are computed and changes stored until nothing waits."""
        while self.to_assign or self.unstored:
            if self.to_assign:
                self.assign()
            self.store()

    def pass_ms(self, ms: int) -> None:
        """Time passes, and the group notices."""
        self.now_ms += ms
        self.apply(TimePassed(now_ms=self.now_ms))

    def load(self) -> None:
        """Another coordinator goes on with what was stored."""
        group = self.group
        members = {
            one.member_id: one
            for changes in self.stored
            for one in changes.members
            if isinstance(one, ConsumerMember)
        }
        gone = set(members) - set(group.members)
        self.group = ConsumerGroup.of(
            "group",
            POLICY,
            group.record(),
            [one for member_id, one in members.items() if member_id not in gone],
            self.now_ms,
        )
        self.unstored, self.to_assign = [], False
        self.apply(Loaded(now_ms=self.now_ms))

    def two_members(self) -> None:
        """`a` has 0 and 1 at epoch 2, `b` has 2 and 3."""
        self.heartbeat("a", 0)
        self.heartbeat("b", 0)
        kept = self.heartbeat("a", 1).assignment
        self.heartbeat("a", 1, owned=kept)
        self.heartbeat("b", 2)
        self.stored.extend(self.unstored)
