from tests.support import wire
from tests.support.in_process_broker import in_process_broker
from tests.support.on_uvloop import on_uvloop


@on_uvloop
async def test_smoke() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            for n in range(3):
                part = await client.produce(topic, 0, wire.batch([b"x"]))
                assert (part.error_code, part.base_offset) == (0, n)
            parts = await client.fetch(topic, {0: 0})
            assert wire.records_in(parts[0].records) == [(0, b"x"), (1, b"x"), (2, b"x")]
