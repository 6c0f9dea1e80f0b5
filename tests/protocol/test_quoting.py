"""`quoted`: text of clients in log lines and messages."""

import pytest

from kafscale.protocol.quoting import quoted


@pytest.mark.parametrize("text", ["", "orders", "it's", "größe-東京", "a" * 100])
def test_short_printable_text_is_unchanged(text: str) -> None:
    assert quoted(text) == text


def test_long_text_is_cut_and_says_its_length() -> None:
    assert quoted("a" * 101) == "a" * 100 + "... (101 characters)"
    assert quoted("abcdef", max_characters=3) == "abc... (6 characters)"


def test_characters_that_are_not_printable_are_escaped() -> None:
    assert quoted("a\nb\x1b[31m\u2028") == "a\\nb\\x1b[31m\\u2028"


@pytest.mark.parametrize("char", ["\U0010ffff", "\ue000", "\n", "字"])
def test_longest_text_of_any_character_stays_bounded(char: str) -> None:
    assert len(quoted(char * 32_767)) <= 10 * 100 + len("... (32767 characters)")
