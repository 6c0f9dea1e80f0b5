"""Publications that share a transaction, and the answer to each."""

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.log.writing.publication_batch import Publication, answers, next_batch
from kafscale.metadata.store import Compare, KeyValue, Put, TransactionResult

LARGE = 1 << 20


def publication(key: str, size_bytes: int = 10, revision: int = 1) -> Publication:
    return Publication(key=key, value=bytes(size_bytes), mod_revision=revision)


def at(key: str, revision: int) -> KeyValue:
    return KeyValue(key=key, value=b"found", mod_revision=revision)


def failed(*found: KeyValue | None) -> TransactionResult:
    return TransactionResult(succeeded=False, revision=90, found=found)


class TestNextBatch:
    def test_no_publications_make_an_empty_batch(self) -> None:
        assert next_batch([], 128, LARGE) == []

    def test_all_that_fit_go_in_their_order(self) -> None:
        assert next_batch([publication(key) for key in "cab"], 128, LARGE) == [0, 1, 2]

    def test_no_more_than_the_store_takes(self) -> None:
        assert next_batch([publication(key) for key in "abcde"], 3, LARGE) == [0, 1, 2]

    def test_no_more_bytes_than_a_request_may_have(self) -> None:
        each = publication("a", 1000).request_bytes
        waiting = [publication(key, 1000) for key in "abcd"]
        assert next_batch(waiting, 128, 3 * each) == [0, 1, 2]
        assert next_batch(waiting, 128, 3 * each - 1) == [0, 1]

    def test_smaller_publications_do_not_overtake(self) -> None:
        waiting = [publication("a", 10), publication("b", 5000), publication("c", 10)]
        assert next_batch(waiting, 128, 3000) == [0]

    def test_one_that_is_too_large_by_itself_goes_alone(self) -> None:
        assert next_batch([publication("a", 5000), publication("b")], 128, 3000) == [0]

    def test_a_second_of_one_key_waits_and_delays_no_other(self) -> None:
        waiting = [publication("a"), publication("a", revision=2), publication("b")]
        assert next_batch(waiting, 128, LARGE) == [0, 2]

    def test_the_size_in_a_request_counts_keys_and_values(self) -> None:
        small = publication("a", 10).request_bytes
        assert publication("a", 11).request_bytes == small + 1
        assert publication("ä", 10).request_bytes > small


class TestAnswers:
    def test_a_publication_is_a_compare_and_a_put(self) -> None:
        one = Publication(key="a", value=b"v", mod_revision=7)
        assert (one.compare, one.put) == (Compare("a", 7), Put("a", b"v"))

    def test_success_is_that_of_all_publications(self) -> None:
        result = TransactionResult(succeeded=True, revision=9)
        assert answers([publication("a"), publication("b")], result) == [result, result]

    def test_only_whose_own_condition_does_not_hold_hears_so(self) -> None:
        batch = [publication("a"), publication("b"), publication("c"), publication("d")]
        told = answers(batch, failed(at("a", 1), at("b", 2), None, at("d", 1)))
        assert told == [None, failed(at("b", 2)), failed(None), None]

    def test_all_may_have_failed(self) -> None:
        told = answers([publication("a"), publication("b")], failed(at("a", 3), at("b", 2)))
        assert told == [failed(at("a", 3)), failed(at("b", 2))]

    def test_answers_that_contradict_themselves_raise(self) -> None:
        with pytest.raises(StoreUnavailableError, match="2 publications, and every compare holds"):
            answers([publication("a"), publication("b")], failed(at("a", 1), at("b", 1)))
