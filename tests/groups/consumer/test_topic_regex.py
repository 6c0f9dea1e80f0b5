"""Expressions of subscriptions: what RE2 takes, on whole names, within limits, and what it says of the others."""

import random
import re
import string
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.groups.consumer.topic_regex import (
    MAX_PATTERN_BYTES,
    NAMES_PER_PIECE,
    TopicRegex,
    matching,
    resolve,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tasks.thread_turns import ThreadTurns

NAMES = ["orders", "orders-2", "my-orders", "Orders", "payments", "__consumer_offsets", "a.b", "axb"]


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-2"]),
        (".*orders", ["orders", "my-orders"]),
        ("(?i)orders", ["orders", "Orders"]),
        ("orders|payments", ["orders", "payments"]),
        (r"a\.b", ["a.b"]),
        ("a.b", ["a.b", "axb"]),
        (r"\Qa.b\E", ["a.b"]),
        ("^orders$", ["orders"]),
        (r"[^_]\w*s", ["orders", "Orders", "payments"]),
        ("(?<first>o)rders", ["orders"]),
        ("", []),
    ],
)
def test_an_expression_describes_whole_names(pattern: str, matches: list[str]) -> None:
    assert matching(TopicRegex(pattern), NAMES) == matches


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("orders(", "missing ): orders("),
        ("[z-a]", "invalid character class range: z-a"),
        ("a{2000}", "invalid repetition size: {2000}"),
        ("(?=orders).*", "invalid perl operator: (?="),
        (r"(o)\1", r"invalid escape sequence: \1"),
        ("a**", "bad repetition operator: **"),
    ],
)
def test_an_illegal_expression_is_refused_by_name(pattern: str, problem: str) -> None:
    with pytest.raises(KafkaError) as refused:
        TopicRegex(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert f"`{pattern}`" in refused.value.message
    assert problem in refused.value.message


@pytest.mark.parametrize(
    "pattern",
    [
        "x" * (MAX_PATTERN_BYTES + 1),
        "é" * MAX_PATTERN_BYTES,
        "(?:[^a]?.?.?.?){1000}",
        "(?:.?){900}",
        "|".join(["(?:[a-z]{1,50}[0-9]{1,50}x)"] * 140),
    ],
    ids=["bytes", "characters", "memory", "instructions", "alternatives"],
)
def test_an_expression_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refused:
        TopicRegex(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(refused.value.message) < 500


def test_the_longest_list_of_names_is_a_legal_expression() -> None:
    names = [f"topic-{number:04}" for number in range(MAX_PATTERN_BYTES // 11)]
    assert matching(TopicRegex("|".join(names)), [*NAMES, *names]) == names


def test_the_library_writes_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    for pattern in ("orders(", "(?:[^a]?.?.?.?){1000}"):
        with pytest.raises(KafkaError):
            TopicRegex(pattern)
    assert capfd.readouterr() == ("", "")


@settings(max_examples=100, deadline=None)
@given(pattern=st.text(max_size=60))
def test_any_text_compiles_or_is_refused(pattern: str) -> None:
    try:
        TopicRegex(pattern).matches("orders")
    except KafkaError as refused:
        assert refused.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@settings(max_examples=100, deadline=None)
@given(
    pattern=st.from_regex(r"([a-c.]|\[[a-c]+\]|\([a-c]\|[a-c]*\))([*+?])?", fullmatch=True).flatmap(
        lambda part: st.integers(1, 4).map(lambda count: part * count)
    ),
    name=st.text("abc", max_size=8),
)
def test_simple_expressions_mean_what_python_says(pattern: str, name: str) -> None:
    assert TopicRegex(pattern).matches(name) == (re.fullmatch(pattern, name) is not None)


async def test_names_are_matched_on_a_thread_in_pieces() -> None:
    chosen = random.Random(23)
    names = ["".join(chosen.choices(string.ascii_lowercase, k=6)) for _ in range(2 * NAMES_PER_PIECE + 1)]
    threads: list[int] = []

    class Watched(TopicRegex):
        def matches(self, name: str) -> bool:
            threads.append(threading.get_ident())
            return super().matches(name)

    found = await resolve(Watched("[a-m].*"), names, ThreadTurns())

    assert found == {name for name in names if name[0] <= "m"}
    assert len(threads) == len(names)
    assert threading.get_ident() not in threads
