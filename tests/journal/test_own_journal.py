"""A broker's own journal against a plain account of what lies where."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafscale.journal.own_journal import (
    NEW_JOURNAL,
    OwnJournal,
    found_fence,
    found_own,
    sealed,
    told_of_end,
)


class Account(RuleBasedStateMachine):
    """`there`: entries known to be there; what is committed is everything below the first that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = NEW_JOURNAL
        self.there: list[bool] = []

    @precondition(lambda self: not self.journal.is_fenced)
    @rule()
    def seal(self) -> None:
        self.journal = sealed(self.journal)
        self.there.append(False)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(0, len(self.there) - 1))
        self.journal = found_own(self.journal, sequence)
        self.there[sequence] = True

    @precondition(lambda self: False in self.there)
    @rule(data=st.data())
    def find_fence(self, data: st.DataObject) -> None:
        missing = [sequence for sequence, is_there in enumerate(self.there) if not is_there]
        sequence = data.draw(st.sampled_from(missing))
        self.journal = found_fence(self.journal, sequence)
        del self.there[sequence:]

    @precondition(lambda self: self.journal.is_fenced)
    @rule()
    def begin_anew(self) -> None:
        self.journal, self.there = NEW_JOURNAL, []

    @invariant()
    def what_is_committed_has_nothing_missing_below_it(self) -> None:
        through = self.there.index(False) if False in self.there else len(self.there)
        assert self.journal.committed_through == through - 1
        assert self.journal.next_sequence == len(self.there)


TestAccount = Account.TestCase


def test_answers_out_of_order_commit_at_once_what_waited() -> None:
    journal = sealed(sealed(sealed(NEW_JOURNAL)))
    journal = found_own(found_own(journal, 2), 1)
    assert journal.committed_through == -1
    assert found_own(journal, 0).committed_through == 2


def test_entries_below_a_fence_may_still_turn_out_to_be_there() -> None:
    journal = found_fence(sealed(sealed(NEW_JOURNAL)), 1)
    assert journal.is_fenced
    assert found_own(journal, 0).committed_through == 0


@pytest.mark.parametrize(("place", "next_sequence"), [(1, 1), (2, 2), (3, 2), (9, 2)])
def test_a_reported_end_refuses_entries_that_are_not_below_it(place: int, next_sequence: int) -> None:
    journal = told_of_end(found_own(sealed(sealed(NEW_JOURNAL)), 0), place)
    assert (journal.is_fenced, journal.next_sequence, journal.committed_through) == (True, next_sequence, 0)
    with pytest.raises(ValueError, match="has ended"):
        sealed(journal)


def test_what_breaks_the_protocol_is_an_error() -> None:
    with pytest.raises(ValueError, match="was not sealed"):
        found_own(NEW_JOURNAL, 0)
    with pytest.raises(ValueError, match="a fence at 0, with entries up to 0 committed"):
        found_fence(found_own(sealed(NEW_JOURNAL), 0), 0)
    with pytest.raises(ValueError, match="a fence at 3"):
        found_fence(sealed(NEW_JOURNAL), 3)
    with pytest.raises(ValueError, match="has ended"):
        sealed(OwnJournal(is_fenced=True))
