"""An entry that is stored and not known to be: its records are not shown, and no reader waits for the answer."""

import asyncio
from collections.abc import Sequence

from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from kafscale.protocol.types import Buffer
from tests.handlers.test_offsets import LATEST, list_offset
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import Client, in_process_broker, until
from tests.support.on_uvloop import on_uvloop


class LateReplies(ControlledStore):
    """Entries are stored; while `late`, no broker is told before `tell`."""

    def __init__(self) -> None:
        super().__init__()
        self.late = False
        self.applied = 0
        self.tell = asyncio.Event()

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        await super().put_if_absent(key, parts)
        if self.late and key.endswith(".entry"):
            self.applied += 1
            await self.tell.wait()


async def end_of(client: Client, topic: str, leader_epoch: int) -> tuple[int, int]:
    """Error code and end offset of an epoch."""
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    one = wanted.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=leader_epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[wanted(topic=topic, partitions=[one])])
    part = (await client.call(request, OffsetForLeaderEpochResponse, 4)).topics[0].partitions[0]
    return part.error_code, part.end_offset


@on_uvloop
async def test_entry_whose_answer_is_late_is_not_shown_before() -> None:
    objects = LateReplies()
    async with (
        in_process_broker(objects=objects) as broker,
        broker.connect() as producer,
        broker.connect() as client,
    ):
        topic = await broker.create_topic()
        epoch = broker.partition(topic).record.leader_epoch
        await producer.produce(topic, 0, wire.batch([b"known"]))
        objects.late = True
        await producer.send_produce(topic, {0: wire.batch([b"stored"])})
        await until(lambda: objects.applied, "it is stored")
        assert await end_of(client, topic, epoch) == (0, 1)
        assert (await list_offset(client, topic, LATEST)).offset == 1
        assert wire.records_in((await client.fetch(topic, {0: 0}))[0].records) == [(0, b"known")]
        objects.tell.set()
        assert (await producer.receive_produce())[1][0].base_offset == 1
        assert await end_of(client, topic, epoch) == (0, 2)
        assert (await list_offset(client, topic, LATEST)).offset == 2
