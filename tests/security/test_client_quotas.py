"""Which quota applies to a client, what it has to wait, and how much memory endless clients take."""

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.quota_record import DEFAULT, QuotaEntity
from kafscale.protocol.quota_kinds import QuotaKind
from kafscale.security.client_quotas import ClientQuotas
from kafscale.security.quota_limits import ClientLimits, Limit
from kafscale.security.rates import Windows

WINDOWS = Windows(11, 1000)
PRODUCE, FETCH, REQUEST = QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST
MUTATION, CONNECTION = QuotaKind.MUTATION, QuotaKind.CONNECTION

BY_PRECEDENCE = [
    (QuotaEntity(user="u", client_id="c"), ("u", "c")),
    (QuotaEntity(user="u", client_id=DEFAULT), ("u", "c")),
    (QuotaEntity(user="u"), ("u", None)),
    (QuotaEntity(user=DEFAULT, client_id="c"), ("u", "c")),
    (QuotaEntity(user=DEFAULT, client_id=DEFAULT), ("u", "c")),
    (QuotaEntity(user=DEFAULT), ("u", None)),
    (QuotaEntity(client_id="c"), (None, "c")),
    (QuotaEntity(client_id=DEFAULT), (None, "c")),
]
"""Kafka's order, and whose amounts count together."""


def quotas(*given: tuple[QuotaEntity, Mapping[str, float]], most: int = 100) -> ClientQuotas:
    made = ClientQuotas(WINDOWS, most)
    for entity, limits in given:
        made.set(entity, limits)
    return made


@pytest.mark.parametrize("first", range(8))
def test_most_specific_quota_applies(first: int) -> None:
    limits = ClientLimits()
    for rate, (entity, _) in list(enumerate(BY_PRECEDENCE, 1))[first:]:
        limits.set(entity, rate)
    limits.set(QuotaEntity(user="other"), 100)
    limits.set(QuotaEntity(client_id="other"), 100)
    assert limits.find("u", "c") == Limit(first + 1, BY_PRECEDENCE[first][1])


@given(st.sets(st.sampled_from([entity for entity, _ in BY_PRECEDENCE])))
def test_removed_quota_applies_no_more(entities: set[QuotaEntity]) -> None:
    limits = ClientLimits()
    for rate, (entity, _) in enumerate(BY_PRECEDENCE):
        limits.set(entity, rate)
    for entity in entities:
        limits.set(entity, None)
    left = [(rate, bucket) for rate, (entity, bucket) in enumerate(BY_PRECEDENCE) if entity not in entities]
    assert limits.find("u", "c") == (Limit(*left[0]) if left else None)


def test_client_without_an_id_counts_as_default() -> None:
    made = quotas((QuotaEntity(client_id=DEFAULT), {PRODUCE: 10}))
    assert made.produce.record("u", "", 1000, 0) > 0


def test_users_do_not_share_the_default_users_limit() -> None:
    made = quotas((QuotaEntity(user=DEFAULT), {PRODUCE: 10}))
    assert made.produce.record("a", "c", 1000, 0) > 0
    assert made.produce.record("b", "c", 10, 0) == 0
    assert made.produce.record("a", "other", 1, 0) > 0


def test_kinds_are_limited_independently() -> None:
    made = quotas((QuotaEntity(user="u"), {FETCH: 10}))
    assert made.are_any
    assert made.produce.record("u", "c", 10**9, 0) == 0
    assert made.request.record("u", "c", 10**9, 0) == 0
    assert made.fetch.record("u", "c", 10**9, 0) > 0


def test_no_quota_of_clients_means_nothing_is_measured() -> None:
    made = quotas((QuotaEntity(ip="10.0.0.1"), {CONNECTION: 1}))
    seen = [made.are_any]
    made.set(QuotaEntity(user="u"), {REQUEST: 1.0})
    seen.append(made.are_any)
    made.request.record("u", "c", 10**9, 0)
    made.set(QuotaEntity(user="u"), {})
    seen.append(made.are_any)
    assert seen == [False, True, False]
    assert made.bucket_counts()[REQUEST] == 0


def test_time_of_requests_delays_by_one_window_at_most() -> None:
    made = quotas((QuotaEntity(user="u"), {REQUEST: 1.0}))
    assert made.request.record("u", "c", 10**6, 0) == 1000


def test_fetch_above_its_limit_is_withheld_and_not_counted() -> None:
    made = quotas((QuotaEntity(user="u"), {FETCH: 1000}))
    assert made.fetch.most_at_once("u", "c") == 10_000
    assert made.fetch.withhold("u", "c", 9000, 0) == (0, False)
    assert made.fetch.withhold("u", "c", 9000, 0) == (8000, True)
    assert made.fetch.withhold("u", "c", 1000, 0) == (0, False)


def test_batch_above_the_limit_is_given_within_the_limit() -> None:
    """Otherwise a consumer with a small quota never gets a large batch."""
    made = quotas((QuotaEntity(user="u"), {FETCH: 1000}))
    assert made.fetch.withhold("u", "c", 50, 0) == (0, False)
    assert made.fetch.withhold("u", "c", 10_500, 0) == (550, False)
    assert made.fetch.withhold("u", "c", 10_500, 100)[1]


def test_mutations_are_taken_and_given_back() -> None:
    made = quotas((QuotaEntity(user="u"), {MUTATION: 1.0}))
    made.mutation.take("u", "c", 20, 0)
    assert made.mutation.delay_ms("u", "c", 0) == 9000
    made.mutation.take("u", "c", -20, 0)
    assert made.mutation.delay_ms("u", "c", 0) == 0
    assert made.mutation.delay_ms("other", "c", 0) == 0


def test_connections_of_an_address_are_delayed() -> None:
    made = quotas((QuotaEntity(ip="10.0.0.1"), {CONNECTION: 1}), (QuotaEntity(ip=DEFAULT), {CONNECTION: 2}))
    record = made.connection.record
    assert [record("::ffff:10.0.0.1", "10.0.0.1", 0) for _ in range(11)][-2:] == [0, 1000]
    assert [record("10.0.0.2", "10.0.0.2", 0) for _ in range(21)][-2:] == [0, 500]
    assert record("10.0.0.1", "10.0.0.1", 11_001) == 0


def test_endless_client_ids_share_a_bucket() -> None:
    made = quotas((QuotaEntity(client_id=DEFAULT), {PRODUCE: 10}), most=50)
    delays = [made.produce.record("u", f"{number:0>30000}", 20, number) for number in range(1000)]
    assert made.bucket_counts()[PRODUCE] <= 51
    assert not any(delays[:50])
    assert delays[-1] > 0
    # Those that are known are not slowed by the others.
    assert made.produce.record("u", f"{3:0>30000}", 20, 1000) == 0


def test_unused_buckets_are_removed() -> None:
    made = quotas((QuotaEntity(client_id=DEFAULT), {PRODUCE: 10, MUTATION: 5.0}), most=50)
    for number in range(50):
        made.produce.record("u", str(number), 20, 0)
        made.mutation.take("u", str(number), 1, 0)
    later_ms = WINDOWS.span_ms + 1
    made.produce.record("u", "new", 1, later_ms)
    made.mutation.take("u", "new", 1, later_ms)
    assert made.bucket_counts() == {PRODUCE: 1, FETCH: 0, REQUEST: 0, MUTATION: 1, CONNECTION: 0}


def test_changed_limit_applies_to_what_was_used() -> None:
    made = quotas((QuotaEntity(user="u"), {PRODUCE: 1000}))
    assert made.produce.record("u", "c", 9000, 0) == 0
    made.set(QuotaEntity(user="u"), {PRODUCE: 100})
    assert made.produce.record("u", "c", 0, 0) == 80_000


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("cd"), st.integers(1, 5000), st.integers(0, 500)),
        max_size=40,
    )
)
def test_clients_are_measured_each_by_itself(events: list[tuple[str, str, int, int]]) -> None:
    """Together with others a client waits as it does alone."""
    entity = QuotaEntity(user=DEFAULT, client_id=DEFAULT)
    together = quotas((entity, {PRODUCE: 1000}))
    alone = {pair: quotas((entity, {PRODUCE: 1000})) for pair in product("ab", "cd")}
    now_ms = 0
    for user, client_id, amount, wait_ms in events:
        now_ms += wait_ms
        assert together.produce.record(user, client_id, amount, now_ms) == alone[
            user, client_id
        ].produce.record(user, client_id, amount, now_ms)
