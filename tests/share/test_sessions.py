"""Share sessions: in turn or refused, one for each member, and none that outlives its connection."""

import random
import uuid

import pytest

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.share.sessions import CLOSES, SessionKey, ShareSession, ShareSessions

TOPIC = uuid.UUID(int=7)
MEMBER = SessionKey("group", "member")


def refused(sessions: ShareSessions, epoch: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        sessions.go_on(MEMBER, epoch)
    return refusal.value.code


def test_requests_come_in_turn() -> None:
    sessions = ShareSessions(10)
    session = sessions.open(MEMBER, "connection")
    assert sessions.go_on(MEMBER, 1) is session
    assert sessions.go_on(MEMBER, 2) is session
    assert refused(sessions, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refused(sessions, 4) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.go_on(MEMBER, 3) is session
    assert sessions.go_on(MEMBER, CLOSES) is session


def test_the_epoch_begins_again_after_the_last() -> None:
    session = ShareSession(MEMBER, "connection", epoch=2**31 - 1)
    session.advance()
    assert session.epoch == 1


def test_without_a_session_nothing_goes_on() -> None:
    sessions = ShareSessions(10)
    assert refused(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert refused(sessions, CLOSES) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_has_one_session() -> None:
    sessions = ShareSessions(1)
    first = sessions.open(MEMBER, "old")
    second = sessions.open(MEMBER, "new")
    assert first is not second
    assert len(sessions) == 1
    assert sessions.remove_connection("old") == []
    assert sessions.remove_connection("new") == [second]
    assert len(sessions) == 0


def test_there_is_a_limit() -> None:
    sessions = ShareSessions(1)
    sessions.open(MEMBER, "connection")
    with pytest.raises(KafkaError) as refusal:
        sessions.open(SessionKey("group", "another"), "connection")
    assert refusal.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.remove(MEMBER)
    sessions.open(SessionKey("group", "another"), "connection")


def test_each_partition_is_the_first_once() -> None:
    sessions = ShareSessions(1)
    session = sessions.open(MEMBER, "connection")
    sessions.change(session, [(TOPIC, index) for index in range(5)], [])
    firsts = []
    for epoch in range(1, 6):
        firsts.append(session.in_turn()[0])
        sessions.go_on(MEMBER, epoch)
    assert sorted(firsts) == sorted(session.partitions)
    sessions.change(session, [(TOPIC, 9)], [(TOPIC, index) for index in range(5)])
    assert session.in_turn() == [(TOPIC, 9)]
    sessions.change(session, [], [(TOPIC, 9), (TOPIC, 9)])
    assert session.in_turn() == []


def test_all_sessions_together_have_a_limit_of_partitions() -> None:
    sessions = ShareSessions(9, partition_limit=4)
    first = sessions.open(MEMBER, "connection")
    sessions.change(first, [(TOPIC, index) for index in range(3)], [])
    second = sessions.open(SessionKey("group", "another"), "connection")
    with pytest.raises(KafkaError) as refusal:
        sessions.change(second, [(TOPIC, 7), (TOPIC, 8)], [])
    assert refusal.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert second.in_turn() == []
    sessions.change(first, [], [(TOPIC, 0)])
    sessions.change(second, [(TOPIC, 7), (TOPIC, 8)], [])
    sessions.remove(MEMBER)
    sessions.change(first, [(TOPIC, 9)], [])  # It has ended: nothing counts.
    sessions.change(second, [(TOPIC, 9), (TOPIC, 10)], [])
    assert len(second.partitions) == 4


def test_sessions_go_with_their_connections() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    sessions = ShareSessions(50)
    open_ones: dict[SessionKey, int] = {}
    for _ in range(2_000):
        connection, key = (
            chance.randrange(8),
            SessionKey(f"g{chance.randrange(3)}", f"m{chance.randrange(9)}"),
        )
        match chance.randrange(4):
            case 0 | 1:
                sessions.open(key, connection)
                open_ones[key] = connection
            case 2:
                assert (sessions.remove(key) is None) == (open_ones.pop(key, None) is None)
            case _:
                ended = {session.key for session in sessions.remove_connection(connection)}
                assert ended == {one for one, opener in open_ones.items() if opener == connection}
                open_ones = {one: opener for one, opener in open_ones.items() if opener != connection}
        assert len(sessions) == len(open_ones)
