"""Notes of a fetch's loads: reads of the store, and only those that the fetch began."""

import asyncio

from kafscale.log.reading.load_notes import LoadNotes, note_check, note_get, note_index, noted
from tests.support import wire
from tests.support.in_process_broker import in_process_broker, until
from tests.support.on_uvloop import on_uvloop


@on_uvloop
async def test_a_shared_load_is_noted_where_it_began() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"x"]))
        broker.forget_cached(topic)
        partition, reader = broker.partition(topic), broker.process.serving.reader
        assert partition.references is not None
        (reference,) = partition.references
        first, second = LoadNotes(), LoadNotes()
        with broker.objects.hold("read_into", "*.entry") as hold:
            with noted(first):
                beginning = asyncio.create_task(reader.load(partition, reference, 0))
            await hold.reached()
            with noted(second):
                joining = asyncio.create_task(reader.load(partition, reference, 0))
            await until(lambda: any(len(one) == 2 for one in reader._loads._callers.values()), "it joins")
        for segment in await asyncio.gather(beginning, joining):
            segment.release()
        assert (first.gets, second.gets) == (1, 0)
        assert first.checked[0] < first.checked[1]
        assert second.checked == (0.0, 0.0)


def test_notes_end_with_their_block() -> None:
    notes = LoadNotes()
    with noted(notes):
        note_get()
        note_index(is_cached=True)
        note_index(is_cached=False)
        note_check(1.0, 2.0)
    note_get()
    note_index(is_cached=True)
    note_check(3.0, 4.0)
    assert notes == LoadNotes(indexes_cached=1, indexes_missing=1, gets=1, checked=(1.0, 2.0))


def test_a_check_counts_within_the_given_times() -> None:
    notes = LoadNotes(checked=(2.0, 5.0))
    assert notes.check_sec(0.0, 10.0) == 3.0
    assert notes.check_sec(4.0, 10.0) == 1.0
    assert notes.check_sec(0.0, 3.0) == 1.0
    assert notes.check_sec(6.0, 10.0) == 0.0
