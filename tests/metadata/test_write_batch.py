"""Writes that share a transaction, and the answer to each."""

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, Put, TransactionResult
from kafscale.metadata.write_batch import Write, WriteBatch, answers, joined_compares, request_bytes

LARGE = 1 << 20


def write(key: str, size_bytes: int = 10, revision: int = 1) -> Write:
    return Write((Compare(key, revision),), (Put(key, bytes(size_bytes)),))


def at(key: str, revision: int) -> KeyValue:
    return KeyValue(key=key, value=b"found", mod_revision=revision)


def failed(*found: KeyValue | None) -> TransactionResult:
    return TransactionResult(succeeded=False, revision=90, found=found)


def taken(writes: list[Write], max_operations: int = 128, max_bytes: int = LARGE) -> int:
    """How many of them share the first transaction."""
    batch = WriteBatch(max_operations, max_bytes)
    return next((count for count, one in enumerate(writes) if not batch.takes(one)), len(writes))


class TestBatch:
    def test_all_that_fit_go_in_their_order(self) -> None:
        assert taken([write(key) for key in "cab"]) == 3

    def test_no_more_operations_than_the_store_takes(self) -> None:
        assert taken([write(key) for key in "abcde"], max_operations=3) == 3
        several = [Write((), tuple(Put(f"{name}{n}", b"") for n in range(2))) for name in "abc"]
        assert taken(several, max_operations=5) == 2

    def test_no_more_compares_than_the_store_takes(self) -> None:
        several = [Write((Compare(f"{name}1", 1), Compare(f"{name}2", 1)), ()) for name in "abc"]
        assert taken(several, max_operations=5) == 2

    def test_a_compare_that_is_there_already_takes_no_room(self) -> None:
        owned = [Write((Compare("owner", 1), Compare(name, 1)), (Put(name, b""),)) for name in "abc"]
        assert taken(owned, max_operations=4) == 3

    def test_no_more_bytes_than_a_request_may_have(self) -> None:
        writes = [write(key, 1000) for key in "abcd"]
        each = writes[0].request_bytes
        assert taken(writes, max_bytes=3 * each) == 3
        assert taken(writes, max_bytes=3 * each - 1) == 2

    def test_one_that_is_too_large_by_itself_goes_alone(self) -> None:
        assert taken([write("a", 5000), write("b")], max_bytes=3000) == 1

    @pytest.mark.parametrize(
        "second",
        [
            write("a", revision=2),
            Write((), (Delete("a"),)),
            Write((Compare("a", 1),), (Put("b", b""),)),
            Write((), (Put("read", b""),)),
        ],
        ids=["the same key", "a deletion", "compares what changes", "changes what is compared"],
    )
    def test_a_write_that_depends_on_another_does_not_share(self, second: Write) -> None:
        first = Write((Compare("a", 1), Compare("read", 1)), (Put("a", b""),))
        assert taken([first, second]) == 1
        assert taken([second, first]) == 1

    def test_the_size_in_a_request_counts_keys_and_values(self) -> None:
        small = write("a", 10).request_bytes
        assert write("a", 11).request_bytes == small + 1
        assert write("ä", 10).request_bytes > small
        assert request_bytes([Delete("a")]) == request_bytes([Put("a", b"")]) < small


class TestAnswers:
    def ask(self, writes: list[Write], result: TransactionResult) -> list[TransactionResult | None]:
        return answers(writes, joined_compares(writes), result)

    def test_success_is_that_of_all(self) -> None:
        result = TransactionResult(succeeded=True, revision=9)
        assert self.ask([write("a"), write("b")], result) == [result, result]

    def test_only_whose_own_condition_does_not_hold_hears_so(self) -> None:
        writes = [write("a"), write("b"), write("c"), write("d")]
        told = self.ask(writes, failed(at("a", 1), at("b", 2), None, at("d", 1)))
        assert told == [None, failed(at("b", 2)), failed(None), None]

    def test_all_may_have_failed(self) -> None:
        told = self.ask([write("a"), write("b")], failed(at("a", 3), at("b", 2)))
        assert told == [failed(at("a", 3)), failed(at("b", 2))]

    def test_what_must_be_absent_holds_where_nothing_is(self) -> None:
        writes = [write("a", revision=ABSENT), write("b", revision=ABSENT)]
        assert self.ask(writes, failed(None, at("b", 4))) == [None, failed(at("b", 4))]

    def test_one_compare_of_two_writes_fails_both(self) -> None:
        """Each is told what it asked for, in its own order."""
        first = Write((Compare("owner", 1), Compare("a", 1)), ())
        second = Write((Compare("b", 1), Compare("owner", 1)), ())
        third = write("c")
        assert joined_compares([first, second, third]) == [
            Compare("owner", 1),
            Compare("a", 1),
            Compare("b", 1),
            Compare("c", 1),
        ]
        told = self.ask([first, second, third], failed(at("owner", 2), at("a", 1), at("b", 1), at("c", 1)))
        assert told == [failed(at("owner", 2), at("a", 1)), failed(at("b", 1), at("owner", 2)), None]

    def test_answers_that_contradict_themselves_raise(self) -> None:
        with pytest.raises(StoreUnavailableError, match="2 compares, and every one holds"):
            self.ask([write("a"), write("b")], failed(at("a", 1), at("b", 1)))
