"""Questions about producers that are about to begin a transaction in a partition (KIP-890, part 1).

Before the first batch of a transaction is appended, its leader asks the metadata store if the partition belongs to
the transaction. The answer may be out of date when it arrives: the transaction was decided meanwhile, and its marker
was handled here. A batch that came after it would never be decided. So a marker ends the questions about its
producer, as it ends Kafka's VerificationStateEntry.
"""


class Verification:
    """One question. `is_valid`: no marker of the producer was handled in the partition since it was asked."""

    __slots__ = ("is_valid", "place")

    def __init__(self, place: tuple[int, int]) -> None:
        self.place = place
        self.is_valid = True


class Verifications:
    """The questions that wait for an answer, by the partition's number in this process and the producer's id."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], list[Verification]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._asked.values()))

    def begin(self, partition_number: int, producer_id: int) -> Verification:
        """A question is asked; to be ended with `end`."""
        verification = Verification((partition_number, producer_id))
        self._asked.setdefault(verification.place, []).append(verification)
        return verification

    def end(self, verification: Verification) -> None:
        """The question was answered."""
        asked = self._asked[verification.place]
        asked.remove(verification)
        if not asked:
            del self._asked[verification.place]

    def invalidate(self, partition_number: int, producer_id: int) -> None:
        """A marker of the producer is handled in the partition: answers to earlier questions do not count."""
        for verification in self._asked.get((partition_number, producer_id), ()):
            verification.is_valid = False
