"""A broker's own journal: which entries are in flight, which are committed, and whether it was ended.

Entries are put with put-if-absent, and each is put again with the same bytes until it is known what lies there
(docs/format/journal.md).
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class OwnJournal:
    """`next_sequence`: of the entry that is sealed next. `in_flight`: the entries below it that are not committed,
    oldest first, with True for one that is known to be there. `is_fenced`: another broker ended the journal.
    """

    next_sequence: int = 0
    in_flight: tuple[bool, ...] = ()
    is_fenced: bool = False

    @property
    def committed_through(self) -> int:
        """The newest committed sequence, -1 for none: it and all below it are known to be there."""
        return self.next_sequence - 1 - len(self.in_flight)


NEW_JOURNAL = OwnJournal()


def sealed(journal: OwnJournal) -> OwnJournal:
    """After the entry `next_sequence` was sealed, with the `committed_through` of before, to be put.

    Raises `ValueError` if the journal has ended.
    """
    if journal.is_fenced:
        raise ValueError(f"the journal has ended; entry {journal.next_sequence} cannot be sealed")
    return replace(journal, next_sequence=journal.next_sequence + 1, in_flight=(*journal.in_flight, False))


def found_own(journal: OwnJournal, sequence: int) -> OwnJournal:
    """After it became known that the entry's own bytes lie under its key.

    What is committed by that, every sequence up to the new `committed_through`, is to be acknowledged in its order.
    Raises `ValueError` for a sequence that was never sealed.
    """
    if sequence >= journal.next_sequence:
        raise ValueError(f"entry {sequence} was not sealed; the next one is {journal.next_sequence}")
    place = sequence - journal.committed_through - 1
    if place < 0:  # a second answer
        return journal
    in_flight = (*journal.in_flight[:place], True, *journal.in_flight[place + 1 :])
    missing = in_flight.index(False) if False in in_flight else len(in_flight)
    return replace(journal, in_flight=in_flight[missing:])


def found_fence(journal: OwnJournal, sequence: int) -> OwnJournal:
    """After a fence was found under the key of an entry: this entry and all above it were never stored.

    Entries below it that are in flight may still turn out to be there. Raises `ValueError` for the fence of a
    committed entry, which breaks the protocol, and for one that was never sealed.
    """
    if not journal.committed_through < sequence < journal.next_sequence:
        raise ValueError(
            f"a fence at {sequence}, with entries up to {journal.committed_through} committed and "
            f"{journal.next_sequence} the next one"
        )
    below = sequence - journal.committed_through - 1
    return OwnJournal(sequence, journal.in_flight[:below], is_fenced=True)


def told_of_end(journal: OwnJournal, place: int) -> OwnJournal:
    """After the journal's record said that its fence is there. Raises `ValueError` as `found_fence`."""
    if place < journal.next_sequence:
        return found_fence(journal, place)
    return replace(journal, is_fenced=True)
