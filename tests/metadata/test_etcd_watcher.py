"""A watch and etcd's answers, some of which a healthy etcd rarely gives."""

from aetcd import rpc

from kafscale.metadata.etcd.codec import EtcdCodec
from kafscale.metadata.etcd.watcher import EtcdWatcher
from kafscale.metadata.store import Changes, Delete, KeyValue

CODEC = EtcdCodec("/c")


def watcher(at_revision: int = 10, max_backlog_bytes: int = 10_000) -> EtcdWatcher:
    begun = EtcdWatcher(CODEC, *CODEC.range("k"), max_backlog_bytes)
    begun.begin(7, at_revision)
    return begun


def put(key: str, revision: int, value: bytes = b"v") -> rpc.Event:
    return rpc.Event(kv=rpc.KeyValue(key=CODEC.key(key), value=value, mod_revision=revision))


def delete(key: str, revision: int) -> rpc.Event:
    return rpc.Event(type=rpc.Event.DELETE, kv=rpc.KeyValue(key=CODEC.key(key), mod_revision=revision))


def answer(
    *events: rpc.Event, fragment: bool = False, revision: int = 99, created: bool = False
) -> rpc.WatchResponse:
    header = rpc.ResponseHeader(revision=revision)
    return rpc.WatchResponse(header=header, watch_id=7, events=events, fragment=fragment, created=created)


def item(key: str, revision: int, value: bytes = b"v") -> KeyValue:
    return KeyValue(key=key, value=value, mod_revision=revision)


def test_it_asks_for_what_comes_after_its_snapshot() -> None:
    request = watcher(at_revision=10).create_request().create_request
    assert (request.key, request.range_end) == (b"/c/k", b"/c/l")
    assert (request.start_revision, request.watch_id) == (11, 7)
    assert request.fragment


def test_events_are_one_change_at_the_newest_revision() -> None:
    begun = watcher()
    begun.take_response(answer(put("k/a", 12), delete("k/b", 12), put("k/a", 14)))
    assert begun.take() == Changes(
        puts_and_deletes=(item("k/a", 12), Delete("k/b"), item("k/a", 14)), revision=14
    )
    assert begun.create_request().create_request.start_revision == 15


def test_fragments_are_one_change_when_the_last_is_there() -> None:
    begun = watcher()
    begun.take_response(answer(put("k/a", 12), fragment=True))
    begun.take_response(answer(put("k/b", 12), fragment=True))
    assert begun.take() is None
    begun.take_response(answer(put("k/c", 12)))
    assert begun.take() == Changes(
        puts_and_deletes=(item("k/a", 12), item("k/b", 12), item("k/c", 12)), revision=12
    )


def test_a_break_between_fragments_asks_for_all_of_them_again() -> None:
    begun = watcher()
    begun.take_response(answer(put("k/a", 12), fragment=True))
    assert begun.create_request().create_request.start_revision == 11
    begun.take_response(answer(put("k/a", 12), fragment=True))
    begun.take_response(answer(put("k/b", 12)))
    assert begun.take() == Changes(puts_and_deletes=(item("k/a", 12), item("k/b", 12)), revision=12)


def test_fragments_past_the_limit_are_left_for_a_snapshot() -> None:
    begun = watcher(max_backlog_bytes=3_000)
    for number in range(4):
        begun.take_response(answer(put("k/a", 12 + number, bytes(1_000)), fragment=True))
    assert begun.needs_snapshot
    begun.take_response(answer(put("k/a", 20)))
    assert begun.take() is None
    begun.begin(8, 30)
    begun.take_response(answer(put("k/a", 31)))
    assert begun.take() == Changes(puts_and_deletes=(item("k/a", 31),), revision=31)


def test_repeated_answers_of_a_lagging_member_are_skipped() -> None:
    begun = watcher()
    begun.take_response(answer(put("k/a", 9), put("k/a", 10), put("k/a", 11)))
    assert begun.take() == Changes(puts_and_deletes=(item("k/a", 11),), revision=11)
    begun.take_response(answer(put("k/a", 11)))
    assert begun.take() is None


def test_progress_moves_the_watch_past_compaction() -> None:
    begun = watcher()
    begun.take_response(answer(revision=50))
    assert begun.create_request().create_request.start_revision == 51
    assert begun.take() is None


def test_the_answer_to_its_creation_is_no_progress() -> None:
    begun = watcher()
    begun.take_response(answer(revision=50, created=True))
    assert begun.create_request().create_request.start_revision == 11
