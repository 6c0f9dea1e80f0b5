"""Batches of a read: their offsets and ends, however the bytes lie in memory, and which have records for a member."""

import random

from kafscale.formats.partition_transactions import AbortedTransaction
from kafscale.protocol.record_builder import encode_batch, records_of
from kafscale.share.log_batches import ReadBatch, bytes_through, read_batches
from kafscale.share.partition.acquiring import LogBatch


def batch(base: int, count: int, **how: object) -> bytes:
    return encode_batch(records_of([b"value"] * count, base_offset=base), **how)  # type: ignore[arg-type]


def walked(data: bytes, aborted: list[AbortedTransaction] | None = None) -> list[LogBatch]:
    return [one.batch for one in read_batches([memoryview(data)], aborted)]


def test_offsets_and_ends_however_the_bytes_lie() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(50):
        expected, data, offset = [], b"", chance.randrange(2**40)
        for _ in range(chance.randrange(6)):
            count = chance.randrange(1, 40)
            data += batch(offset, count)
            expected.append(ReadBatch(LogBatch(offset, offset + count - 1), len(data)))
            offset += count + chance.randrange(2)
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(8)))
        views = [memoryview(data)[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert list(read_batches(views)) == expected


def test_markers_have_no_records_for_a_member() -> None:
    data = batch(0, 2) + batch(2, 1, is_control=True, is_transactional=True, producer_id=9) + batch(3, 1)
    assert walked(data) == [LogBatch(0, 1), LogBatch(2, 2, has_records=False), LogBatch(3, 3)]


def test_aborted_records_are_not_for_who_reads_committed() -> None:
    data = b"".join(
        batch(base, 1, is_transactional=transactional, producer_id=producer)
        for base, producer, transactional in (
            (4, 9, True),  # before the transaction: of an earlier one, which was committed
            (5, 9, True),
            (6, 8, True),
            (7, 9, False),
            (8, 9, True),
            (9, 9, True),
        )
    )
    aborted = [AbortedTransaction(9, 5, 8, 9)]
    assert [one.first for one in walked(data, aborted) if not one.has_records] == [5, 8]
    assert all(one.has_records for one in walked(data))


def test_only_the_bytes_that_the_member_needs() -> None:
    data = batch(0, 5) + batch(5, 5) + batch(10, 5)
    batches = list(read_batches([memoryview(data)]))
    assert bytes_through(batches, 4) == len(batch(0, 5))
    assert bytes_through(batches, 5) == len(batch(0, 5) + batch(5, 5))
    assert bytes_through(batches, 99) == len(data)
    assert bytes_through([], 3) == 0
