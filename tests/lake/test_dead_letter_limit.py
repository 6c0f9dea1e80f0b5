"""The limit of dead letters: a number for a run, a share for a commit."""

import pytest

from kafscale.errors import SettingError
from kafscale.lake.dead_letter_limit import DeadLetterBudget, DeadLetterLimitError, parse_limit

TABLE = "lake.db.orders_dead_letters"


def budget(*texts: str) -> DeadLetterBudget:
    return DeadLetterBudget("orders", parse_limit(texts), TABLE)


def test_without_a_limit_there_may_be_any_number() -> None:
    budget().check(10**9, 10**9)


def test_a_number_is_of_the_whole_run() -> None:
    limited = budget("10")
    limited.check(10, 10)
    limited.spend(7)
    limited.check(3, 10**6)
    with pytest.raises(
        DeadLetterLimitError, match=rf"4 dead letters among 5 records, after 7 in commits before, .* {TABLE}"
    ):
        limited.check(4, 5)
    with pytest.raises(DeadLetterLimitError, match="has 1 dead letters among 9 records, and"):
        budget("0").check(1, 9)


def test_a_share_is_of_one_commit() -> None:
    limited = budget("0.5%")
    limited.check(5, 1000)
    limited.spend(5)
    limited.check(5, 1000)
    limited.check(0, 0)
    with pytest.raises(
        DeadLetterLimitError, match=r"6 dead letters among 1000 records, which is more than 0.5%"
    ):
        limited.check(6, 1000)
    both = budget("1%", "3")
    both.check(3, 300)
    with pytest.raises(DeadLetterLimitError):
        both.check(4, 4000)


@pytest.mark.parametrize(
    "texts", [("",), ("-1",), ("101%",), ("1.5",), ("%",), ("1", "2"), ("1%", "2%"), ("x" * 200,)]
)
def test_limits_that_are_not_legal_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(
        SettingError, match=r"--max-dead-letters .* is not legal: it must be a number of records"
    ):
        parse_limit(texts)
