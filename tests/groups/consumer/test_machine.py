"""The rules of a consumer group, one by one; what is expected of each is what Apache Kafka 4.1.1 does."""

from dataclasses import replace

import pytest

from kafscale.formats.consumer_member_record import MemberState
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.events import RegexResolved
from kafscale.groups.effects import Decided, Heartbeated, Joined, Left, Synced
from kafscale.groups.events import (
    Commit,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Protocol,
    Remove,
    StoreFailed,
    Sync,
    Unload,
)
from kafscale.groups.modern.events import Loaded, TopicIdAndCount, TopicsChanged
from kafscale.groups.states import GroupState
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.consumer.consumer_story import (
    ORDERS,
    PAYMENTS,
    SESSION_MS,
    ConsumerStory,
    partitions,
)

ALL = partitions(0, 1, 2, 3)


@pytest.fixture
def story() -> ConsumerStory:
    """A group that has never had a member."""
    return ConsumerStory()


@pytest.fixture
def pair() -> ConsumerStory:
    """A stable group: `a` has 0 and 1 at epoch 2, `b` has 2 and 3."""
    story = ConsumerStory()
    story.two_members()
    assert story.group.state is GroupState.STABLE
    return story


# Joining and going on


def test_first_member_gets_all_partitions_at_epoch_1(story: ConsumerStory) -> None:
    answer = story.heartbeat("a", 0)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", 1)
    assert answer.assignment == ALL
    assert story.group.state is GroupState.STABLE


def test_an_answer_waits_for_the_target_and_then_for_the_store(story: ConsumerStory) -> None:
    reply_id = story.send("a", 0)
    assert reply_id not in story.answers
    story.assign()
    assert reply_id not in story.answers
    story.store()
    assert story.answer(reply_id).assignment == ALL


def test_an_answer_waits_for_earlier_changes_too(story: ConsumerStory) -> None:
    story.heartbeat("a", 0)
    story.send("b", 0)
    story.assign()
    revoking = story.send("a", 1)
    again = story.send("a", 1)
    assert again not in story.answers
    story.store()
    assert {revoking, again} <= set(story.answers)


def test_idle_heartbeats_store_nothing_and_tell_nothing(pair: ConsumerStory) -> None:
    for _ in range(3):
        assert pair.heartbeat("a", 2).assignment is None
        assert pair.heartbeat("b", 2, owned=partitions(2, 3)).assignment is None
    assert not pair.unstored


def test_a_full_heartbeat_is_told_its_assignment(pair: ConsumerStory) -> None:
    answer = pair.heartbeat("a", 2, names="orders", rebalance_timeout_ms=30_000, owned=partitions(0, 1))
    assert answer.assignment == partitions(0, 1)


def test_a_partition_is_given_up_before_another_member_gets_it(story: ConsumerStory) -> None:
    story.heartbeat("a", 0)
    joined = story.heartbeat("b", 0)
    assert (joined.member_epoch, joined.assignment) == (2, {})
    told = story.heartbeat("a", 1)
    assert (told.member_epoch, told.assignment) == (1, partitions(0, 1))
    assert story.heartbeat("b", 2).assignment is None
    assert story.heartbeat("a", 1, owned=ALL).assignment is None
    assert story.heartbeat("a", 1).assignment is None
    assert story.heartbeat("b", 2).assignment is None
    assert story.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    given_up = story.heartbeat("a", 1, owned=partitions(0, 1))
    assert (given_up.member_epoch, given_up.assignment) == (2, None)
    assert story.heartbeat("b", 2).assignment == partitions(2, 3)
    assert story.group.state is GroupState.STABLE


def test_a_higher_epoch_is_fenced(pair: ConsumerStory) -> None:
    assert pair.refused("a", 3) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("owned", [partitions(0, 1), partitions(0), {}])
def test_the_previous_epoch_is_good_with_a_part(pair: ConsumerStory, owned: dict[object, object]) -> None:
    answer = pair.heartbeat("a", 1, owned=owned)
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize("owned", [None, ALL, partitions(0, topic_id=PAYMENTS)])
def test_the_previous_epoch_is_fenced_with_anything_else(
    pair: ConsumerStory, owned: dict[object, object] | None
) -> None:
    assert pair.refused("a", 1, owned=owned) is ErrorCode.FENCED_MEMBER_EPOCH


def test_an_epoch_before_the_previous_is_fenced(pair: ConsumerStory) -> None:
    pair.heartbeat("b", -1)
    assert pair.heartbeat("a", 2).member_epoch == 3
    assert pair.refused("a", 1, owned={}) is ErrorCode.FENCED_MEMBER_EPOCH


def test_known_member_may_join_again(story: ConsumerStory) -> None:
    """It was fenced and its session was to end first: 45 s in which no member had its partitions."""
    story.heartbeat("a", 0)
    assert story.heartbeat("a", 0).assignment == ALL
    story.two_members()
    again = story.heartbeat("a", 0)
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, story.group.members["a"].member_epoch)
    assert again.assignment == story.group.members["a"].assigned


def test_an_unknown_member_is_refused(pair: ConsumerStory) -> None:
    assert pair.refused("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert pair.refused("stranger", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert pair.refused("a", 2, instance_id="other") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_another_member(pair: ConsumerStory) -> None:
    pair.heartbeat("c", 0)
    assert pair.refused("d", 0) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_another_subscription_raises_the_epoch(pair: ConsumerStory) -> None:
    pair.topics["payments"] = TopicIdAndCount(PAYMENTS, 2)
    answer = pair.heartbeat("a", 2, names="orders payments")
    assert pair.group.group_epoch == 3
    assert pair.group.subscribed_topics() == {"orders", "payments"}
    pair.heartbeat("a", answer.member_epoch, names="orders payments")
    assert pair.group.group_epoch == 3


def test_another_assignor_or_timeout_raises_no_epoch(pair: ConsumerStory) -> None:
    answer = pair.heartbeat("a", 2, assignor="range", rebalance_timeout_ms=1)
    assert answer.member_epoch == 2
    assert pair.group.assignor == "range"
    assert pair.group.group_epoch == 2


def test_an_earlier_request_is_refused_for_the_next(story: ConsumerStory) -> None:
    first = story.send("a", 0)
    second = story.send("a", 0)
    assert story.answer(first).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    story.finish()
    assert story.answer(second).assignment == ALL


def test_a_request_given_up_does_not_undo_leaving(story: ConsumerStory) -> None:
    story.heartbeat("a", 0, instance_id="one")
    given_up = story.send("a", 1, names="orders other", instance_id="one")
    story.send("a", -2, instance_id="one")
    story.finish()
    assert story.answer(given_up).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert story.heartbeat("b", 0, instance_id="one").error_code is ErrorCode.NONE


# Leaving


def test_the_last_member_leaves_a_higher_epoch(story: ConsumerStory) -> None:
    story.heartbeat("a", 0)
    left = story.heartbeat("a", -1)
    assert (left.member_id, left.member_epoch, left.assignment) == ("a", -1, None)
    assert (story.group.state, story.group.group_epoch, story.group.assignment_epoch) == (
        GroupState.EMPTY,
        2,
        1,
    )
    assert story.stored[-1].removed == ("a",)
    assert story.heartbeat("a", 0).member_epoch == 3


def test_the_others_get_what_a_member_had_that_left(pair: ConsumerStory) -> None:
    pair.heartbeat("b", -1)
    assert pair.group.state is GroupState.ASSIGNING
    answer = pair.heartbeat("a", 2)
    assert (answer.member_epoch, answer.assignment) == (3, ALL)


def test_leaving_is_answered_when_it_is_stored(pair: ConsumerStory) -> None:
    reply_id = pair.send("b", -1)
    assert reply_id not in pair.answers
    pair.store()
    assert pair.answer(reply_id).member_epoch == -1


# Static members


@pytest.fixture
def static() -> ConsumerStory:
    """`a` is `one`, and has everything at epoch 1."""
    story = ConsumerStory()
    story.heartbeat("a", 0, instance_id="one")
    return story


def test_an_instance_id_in_use_is_not_released(static: ConsumerStory) -> None:
    assert static.refused("b", 0, instance_id="one") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert static.refused("a", 0, instance_id="one") is ErrorCode.UNRELEASED_INSTANCE_ID


def test_another_member_with_the_instance_id_is_fenced(static: ConsumerStory) -> None:
    for epoch in (1, -1, -2):
        assert static.refused("b", epoch, instance_id="one") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_is_away_keeps_its_partitions(static: ConsumerStory) -> None:
    left = static.heartbeat("a", -2, instance_id="one")
    assert left.member_epoch == -2
    assert (static.group.state, static.group.group_epoch) == (GroupState.RECONCILING, 1)
    joined = static.heartbeat("c", 0)
    assert (joined.member_epoch, joined.assignment) == (2, {})
    assert static.heartbeat("c", 2).assignment is None
    assert static.refused("a", 1, instance_id="one") is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_static_member_returns_under_another_id_to_what_it_had(static: ConsumerStory) -> None:
    static.heartbeat("a", -2, instance_id="one")
    back = static.heartbeat("b", 0, instance_id="one")
    assert (back.member_epoch, back.assignment) == (1, ALL)
    assert static.group.group_epoch == 1
    assert static.refused("a", 1, instance_id="one") is ErrorCode.FENCED_INSTANCE_ID
    assert static.refused("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    removed = [one for changes in static.stored for one in changes.removed]
    assert removed == ["a"]


def test_a_static_member_that_does_not_return_is_removed(static: ConsumerStory) -> None:
    static.heartbeat("c", 0)
    static.heartbeat("a", -2, instance_id="one")
    static.pass_ms(SESSION_MS - 1)
    static.heartbeat("c", 2)
    assert "a" in static.group.members
    static.pass_ms(1)
    assert set(static.group.members) == {"c"}
    assert static.heartbeat("c", 2).assignment == ALL


def test_a_static_member_leaves_for_good_with_epoch_minus_1(static: ConsumerStory) -> None:
    static.heartbeat("a", -1, instance_id="one")
    assert static.group.state is GroupState.EMPTY
    assert static.heartbeat("b", 0, instance_id="one").member_epoch == 3


def test_a_member_that_takes_another_instance_id_frees_its_own(static: ConsumerStory) -> None:
    static.heartbeat("a", 0, instance_id="two")
    static.heartbeat("a", -1, instance_id="two")
    assert static.heartbeat("b", 0, instance_id="one").error_code is ErrorCode.NONE


# Time


def test_a_silent_member_is_removed_when_its_session_ends(pair: ConsumerStory) -> None:
    pair.pass_ms(SESSION_MS - 1)
    pair.heartbeat("a", 2)
    assert set(pair.group.members) == {"a", "b"}
    pair.pass_ms(1)
    assert set(pair.group.members) == {"a"}
    assert pair.refused("b", 2) if not pair.unstored else True
    assert pair.heartbeat("a", 2).assignment == ALL


def test_a_member_that_does_not_give_up_in_time_is_removed(story: ConsumerStory) -> None:
    story.heartbeat("a", 0, rebalance_timeout_ms=1000)
    story.heartbeat("b", 0)
    story.heartbeat("a", 1)
    story.pass_ms(999)
    story.heartbeat("a", 1)
    assert "a" in story.group.members
    story.pass_ms(1)
    story.store()
    assert story.refused("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.heartbeat("b", 2).assignment == ALL


def test_a_member_that_gave_up_in_time_stays(story: ConsumerStory) -> None:
    story.heartbeat("a", 0, rebalance_timeout_ms=1000)
    story.heartbeat("b", 0)
    story.heartbeat("a", 1)
    story.heartbeat("a", 1, owned=partitions(0, 1))
    story.pass_ms(1000)
    assert set(story.group.members) == {"a", "b"}


def test_a_rebalance_timeout_holds_at_a_new_coordinator(story: ConsumerStory) -> None:
    """It is stuck in giving up, and only its heartbeats go on."""
    story.heartbeat("a", 0, rebalance_timeout_ms=1000)
    story.heartbeat("b", 0)
    story.heartbeat("a", 1)
    story.load()
    story.finish()
    story.heartbeat("a", 1)
    story.pass_ms(1000)
    assert set(story.group.members) == {"b"}


# Topics


def test_a_topic_that_grows_raises_the_epoch(pair: ConsumerStory) -> None:
    pair.topics["orders"] = TopicIdAndCount(ORDERS, 6)
    pair.apply(TopicsChanged(now_ms=pair.now_ms, topics=pair.topics))
    pair.heartbeat("a", 2)
    pair.heartbeat("b", 2)
    held = [one.assigned[ORDERS] for one in pair.group.members.values()]
    assert sorted(map(len, held)) == [3, 3]


def test_the_same_topics_again_raise_no_epoch(pair: ConsumerStory) -> None:
    pair.apply(TopicsChanged(now_ms=pair.now_ms, topics=pair.topics))
    assert pair.group.group_epoch == 2
    assert not pair.unstored


def test_a_topic_that_is_deleted_is_given_up(story: ConsumerStory) -> None:
    story.heartbeat("a", 0)
    story.topics.clear()
    story.apply(TopicsChanged(now_ms=story.now_ms, topics={}))
    told = story.heartbeat("a", 1)
    assert (told.member_epoch, told.assignment) == (1, {})
    assert story.heartbeat("a", 1, owned={}).member_epoch == 2


def test_topics_that_change_during_assignment_are_not_missed(story: ConsumerStory) -> None:
    story.heartbeat("a", 0)
    story.send("a", 1, names="orders other")
    computed = story.target()
    story.topics["orders"] = TopicIdAndCount(ORDERS, 5)
    story.apply(TopicsChanged(now_ms=story.now_ms, topics=story.topics))
    story.to_assign = False
    story.apply(computed)
    story.finish()
    answer = story.heartbeat("a", 2)
    assert answer.assignment == partitions(0, 1, 2, 3, 4)


def test_topics_that_change_after_loading_are_not_missed(pair: ConsumerStory) -> None:
    pair.load()
    computed = pair.target()
    pair.topics["orders"] = TopicIdAndCount(ORDERS, 6)
    pair.apply(TopicsChanged(now_ms=pair.now_ms, topics=pair.topics))
    pair.to_assign = False
    pair.apply(computed)
    pair.heartbeat("a", 2)
    pair.heartbeat("b", 2)
    assert sum(len(one.assigned[ORDERS]) for one in pair.group.members.values()) == 6


def test_a_regular_expression_that_matches_more_raises_the_epoch(story: ConsumerStory) -> None:
    joined = story.heartbeat("a", 0, regex="o.*", resolved="orders")
    assert joined.assignment == ALL
    story.topics["other"] = TopicIdAndCount(PAYMENTS, 1)
    for _ in range(2):
        story.apply(
            RegexResolved(now_ms=story.now_ms, regex="o.*", topic_names=frozenset({"orders", "other"}))
        )
    answer = story.heartbeat("a", 1)
    assert (answer.member_epoch, answer.assignment) == (2, {**ALL, PAYMENTS: frozenset({0})})


def test_topics_that_come_during_a_resolution_are_not_missed(story: ConsumerStory) -> None:
    """It is resolved by the topics of before; so it is stale as soon as it is known."""
    story.heartbeat("a", 0, regex="o.*", resolved="orders")
    assert story.group.stale_regexes() == ["o.*"]
    story.group.regexes_are_stale()
    story.apply(RegexResolved(now_ms=story.now_ms, regex="o.*", topic_names=frozenset({"orders"})))
    assert story.group.stale_regexes() == ["o.*"]


def test_a_regex_resolved_during_the_first_assignment_counts(story: ConsumerStory) -> None:
    reply_id = story.send("a", 0, regex="o.*", resolved="")
    computed = story.target()
    story.apply(RegexResolved(now_ms=story.now_ms, regex="o.*", topic_names=frozenset({"orders"})))
    story.to_assign = False
    story.apply(computed)
    story.finish()
    assert story.answer(reply_id).assignment == {}
    assert story.heartbeat("a", 1).assignment == ALL


def test_a_regular_expression_of_nobody_changes_nothing(pair: ConsumerStory) -> None:
    pair.apply(RegexResolved(now_ms=pair.now_ms, regex="o.*", topic_names=frozenset({"orders"})))
    assert pair.group.group_epoch == 2


def test_a_member_takes_its_regular_expression_back(story: ConsumerStory) -> None:
    story.heartbeat("a", 0, regex="o.*", resolved="orders")
    told = story.heartbeat("a", 1, regex="")
    assert told.assignment == {}
    assert story.heartbeat("a", 1, owned={}).member_epoch == 2


def test_an_only_member_with_a_regular_expression_comes_to_rest(story: ConsumerStory) -> None:
    story.heartbeat("a", 0, regex="o.*", resolved="orders")
    story.heartbeat("a", 1, rebalance_timeout_ms=7)
    assert story.group.stale_regexes() == ["o.*"]
    assert not story.group.stale_regexes()
    assert not story.group.unresolved()


# Loading


def test_a_loaded_group_with_nothing_to_do_stores_nothing(pair: ConsumerStory) -> None:
    pair.load()
    pair.assign()
    assert not pair.unstored
    assert (pair.group.group_epoch, pair.group.state) == (2, GroupState.STABLE)
    assert pair.heartbeat("a", 2).assignment is None


def test_a_loaded_group_whose_topics_are_others_has_a_new_epoch(pair: ConsumerStory) -> None:
    pair.topics["orders"] = TopicIdAndCount(ORDERS, 6)
    pair.load()
    pair.assign()
    assert pair.group.group_epoch == 3
    pair.heartbeat("a", 2)
    pair.heartbeat("b", 2)
    assert sum(len(one.assigned[ORDERS]) for one in pair.group.members.values()) == 6


def test_a_loaded_group_goes_on_with_what_was_under_way(story: ConsumerStory) -> None:
    story.heartbeat("a", 0)
    story.heartbeat("b", 0)
    story.heartbeat("a", 1)
    story.load()
    story.finish()
    assert story.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert story.heartbeat("b", 2).assignment is None
    story.heartbeat("a", 1, owned=partitions(0, 1))
    assert story.heartbeat("b", story.group.members["b"].member_epoch).assignment == partitions(2, 3)


def test_a_loaded_group_waits_for_its_regular_expressions(story: ConsumerStory) -> None:
    story.heartbeat("a", 0, regex="o.*", resolved="orders")
    story.load()
    assert not story.to_assign
    assert story.group.stale_regexes() == ["o.*"]
    story.apply(RegexResolved(now_ms=story.now_ms, regex="o.*", topic_names=frozenset({"orders"})))
    story.assign()
    assert (story.group.group_epoch, story.unstored) == (1, [])


# Commits, removal, the end


@pytest.mark.parametrize(
    ("member_id", "epoch", "is_transactional", "knows", "error_code"),
    [
        ("a", 2, False, True, ErrorCode.NONE),
        ("a", 1, False, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, False, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, False, True, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, False, False, ErrorCode.UNSUPPORTED_VERSION),
        ("stranger", 2, False, True, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, False, True, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, True, False, ErrorCode.NONE),
        ("a", 2, True, False, ErrorCode.NONE),
        ("a", 1, True, False, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_who_may_commit(
    pair: ConsumerStory,
    member_id: str,
    epoch: int,
    is_transactional: bool,
    knows: bool,
    error_code: ErrorCode,
) -> None:
    reply_id = pair.next_reply_id()
    pair.apply(
        Commit(
            now_ms=pair.now_ms,
            reply_id=reply_id,
            member_id=member_id,
            group_instance_id=None,
            generation=epoch,
            is_transactional=is_transactional,
            knows_member_epochs=knows,
        )
    )
    assert pair.answers[reply_id] == Decided(error_code)


@pytest.mark.parametrize(("epoch", "error_code"), [(-1, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_MEMBER_ID)])
def test_others_commit_to_a_group_without_members(
    story: ConsumerStory, epoch: int, error_code: ErrorCode
) -> None:
    reply_id = story.next_reply_id()
    story.apply(
        Commit(
            now_ms=story.now_ms,
            reply_id=reply_id,
            member_id="x",
            group_instance_id=None,
            generation=epoch,
            knows_member_epochs=True,
        )
    )
    assert story.answers[reply_id] == Decided(error_code)


def _remove(story: ConsumerStory) -> ErrorCode:
    reply_id = story.next_reply_id()
    story.apply(Remove(now_ms=story.now_ms, reply_id=reply_id))
    content = story.answers[reply_id]
    assert isinstance(content, Decided)
    return content.error_code


def test_a_group_with_members_is_not_removed(pair: ConsumerStory) -> None:
    assert _remove(pair) is ErrorCode.NON_EMPTY_GROUP


def test_leaving_is_answered_in_a_removed_group(story: ConsumerStory) -> None:
    story.heartbeat("a", 0)
    reply_id = story.send("a", -1)
    assert _remove(story) is ErrorCode.NONE
    assert story.group.state is GroupState.DEAD
    story.store()
    assert story.answer(reply_id).member_epoch == -1
    late = story.send("b", 0)
    assert story.answer(late).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_all_that_waits_is_answered_when_the_coordinator_moves(story: ConsumerStory) -> None:
    stored = story.send("a", 0)
    story.assign()
    target = story.send("b", 0)
    story.apply(Unload(now_ms=story.now_ms))
    for reply_id in (stored, target):
        assert story.answer(reply_id).error_code is ErrorCode.NOT_COORDINATOR


def test_a_store_that_failed_is_answered_with_its_error(story: ConsumerStory) -> None:
    reply_id = story.send("a", 0)
    story.assign()
    failed = StoreFailed(
        now_ms=story.now_ms, store_id=story.unstored[0].store_id, error_code=ErrorCode.NOT_COORDINATOR
    )
    story.apply(failed)
    assert story.answer(reply_id) == Heartbeated(error_code=ErrorCode.NOT_COORDINATOR)


def test_members_of_the_classic_protocol_are_refused(pair: ConsumerStory) -> None:
    ids = [pair.next_reply_id() for _ in range(4)]
    now_ms = pair.now_ms
    pair.apply(
        Join(
            now_ms=now_ms,
            reply_id=ids[0],
            member_id="",
            new_member_id="new",
            group_instance_id=None,
            client_id="",
            client_host="",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            protocol_type="connect",
            protocols=(Protocol("range", b""),),
            member_id_required=False,
        )
    )
    pair.apply(
        Sync(
            now_ms=now_ms,
            reply_id=ids[1],
            member_id="x",
            group_instance_id=None,
            generation=2,
            protocol_type=None,
            protocol_name=None,
            assignments={},
        )
    )
    pair.apply(Heartbeat(now_ms=now_ms, reply_id=ids[2], member_id="x", group_instance_id=None, generation=2))
    pair.apply(Leave(now_ms=now_ms, reply_id=ids[3], members=(LeavingMember("x"),)))
    joined, synced, beaten, left = (pair.answers[one] for one in ids)
    assert isinstance(joined, Joined)
    assert joined.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert isinstance(synced, Synced)
    assert synced.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert beaten == Decided(ErrorCode.UNKNOWN_MEMBER_ID)
    assert isinstance(left, Left)
    assert [error_code for _, error_code in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_an_epoch_that_only_members_tell_of_is_stored_again(pair: ConsumerStory) -> None:
    """The last coordinator died between a member's record and the group's; a static member that leaves has none."""
    group, members = pair.group, list(pair.group.members.values())
    behind = replace(group.record(), group_epoch=1)
    pair.group = ConsumerGroup.of("group", group.policy, behind, members, pair.now_ms)
    assert pair.group.group_epoch == 2
    pair.apply(Loaded(now_ms=pair.now_ms))
    [changes] = pair.unstored
    assert changes.record == pair.group.record() != behind
    assert not changes.members and not changes.removed


def test_a_group_that_is_loaded_as_it_was_stores_nothing(pair: ConsumerStory) -> None:
    pair.load()
    assert not pair.unstored
