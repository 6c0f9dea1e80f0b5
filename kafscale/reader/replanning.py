"""The rest of a split whose objects are gone: is all of it still there, and where?"""

from collections.abc import Sequence

from kafscale.errors import OffsetsGoneError, TopicReplacedError
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.splits import Piece, Split, plan_pieces, references_between
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.topic_state import PartitionLog, TopicStates, UnknownTopicError


class ExpiredRangeError(OffsetsGoneError):
    """Offsets of a split are gone: they expired, or their topic was deleted, before they were read."""

    def __init__(self, split: Split, first_offset: int, next_offset: int, reason: str) -> None:
        super().__init__(
            f"offsets {first_offset} to {next_offset - 1} of partition {split.partition} of topic {split.topic!r} "
            f"are gone since the read was planned: {reason}",
            split.topic,
            split.partition,
            first_offset,
            next_offset,
        )


class Rest:
    """The pieces of a split that are not read to their end: from `next_offset` on."""

    def __init__(self, split: Split, pieces: Sequence[Piece], next_offset: int) -> None:
        self.split = split
        self.pieces = [piece for piece in pieces if piece.next_offset > next_offset]
        self.first_offset = max(self.pieces[0].first_offset, next_offset)

    def is_as_planned(self, log: PartitionLog) -> bool:
        """True if the next piece is still where it was."""
        return self.pieces[0].reference in log.references

    def check_covered(self, log: PartitionLog) -> None:
        """Raise `ExpiredRangeError` unless one segment's offsets still are in one segment, or in neighbours."""
        for piece in self.pieces:
            offset = piece.first_offset
            for reference in references_between(log.references, piece.first_offset, piece.next_offset):
                if reference.base_offset > offset:
                    break
                offset = reference.last_offset + 1
            if offset < piece.next_offset:
                reason = f"the partition's log starts at {log.log_start_offset} now"
                if offset >= log.log_start_offset:
                    reason = "no segment of the partition holds them now"
                raise self.expired(reason, piece)

    def expired(self, reason: str, piece: Piece | None = None) -> ExpiredRangeError:
        """The error for the piece, or for the next one."""
        gone = piece or self.pieces[0]
        first_offset = max(gone.first_offset, self.first_offset)
        return ExpiredRangeError(self.split, first_offset, gone.next_offset, reason)


def logs_now(stores: StoreThread, namespace: str, rests: Sequence[Rest]) -> list[PartitionLog]:
    """The partitions of the rests, all of one topic, as they are now.

    Raises `ExpiredRangeError` if the topic was deleted, `StoreError`, `CorruptDataError`.
    """
    topic, topic_id = rests[0].split.topic, rests[0].split.topic_id
    needed = {rest.split.partition: rest.split.next_offset for rest in rests}

    async def read(metadata: MetadataReader, objects: ListingReader) -> list[PartitionLog]:
        states = TopicStates(metadata, objects, namespace, wants=topic.__eq__)
        return await states.partitions(topic, list(needed), needed, topic_id=topic_id)

    try:
        return stores.call(read)
    except TopicReplacedError as problem:
        reason = (
            f"the topic was deleted, there is another of its name (topic id {problem.found_id}, the read is of topic "
            f"id {problem.wanted_id})"
        )
        raise rests[0].expired(reason) from problem
    except UnknownTopicError as problem:
        raise rests[0].expired("the topic was deleted") from problem


def pieces_now(stores: StoreThread, namespace: str, rest: Rest, log: PartitionLog) -> list[Piece]:
    """The requests that read the rest, as the partition is now. Raises `ExpiredRangeError`, `StoreError`."""
    rest.check_covered(log)
    call = plan_pieces(log, stores.objects, namespace, rest.first_offset, rest.split.next_offset)
    return stores.start(call).result()
