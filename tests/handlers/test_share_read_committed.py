"""Share groups that read committed records only, while transactions of a producer begin, commit and abort."""

import asyncio

from kafscale.cluster.group_configs import SHARE_ISOLATION_LEVEL
from kafscale.metadata.keys import SharePartitionId
from kafscale.protocol.error_codes import ErrorCode
from tests.handlers.test_share_configs import MINUTE_MS, setting
from tests.handlers.test_transactions import add, begun, end, produce, until_state
from tests.support.share_member import ACCEPT, Answer

TOPIC = "topic"
TV1_PRODUCE, TV1_END = 11, 4


async def test_aborted_records_and_markers_are_never_delivered() -> None:
    async with setting() as at, at.broker.connect() as client:
        await at.configure("g", {SHARE_ISOLATION_LEVEL: "read_committed"})
        member = await at.member()
        all_records = await at.member("u", group="uncommitted")
        producer = await begun(client)
        await at.produce(2)
        await add(client, producer, [(TOPIC, [0])])
        assert await produce(client, TOPIC, producer, TV1_PRODUCE) == ErrorCode.NONE  # 2
        await at.produce(1)  # 3, above the last stable offset
        assert await member.acquired([0]) == [(0, 1, 1)]
        assert await member.acquired() == []
        await member.send_fetch(max_wait_ms=MINUTE_MS)
        waiting = asyncio.create_task(member.receive_fetch())
        assert await end(client, producer, version=TV1_END) == (ErrorCode.NONE, (-1, -1))
        assert await waiting == {0: Answer([(2, 3, 1)], [2, 3])}
        await until_state(client, "CompleteCommit")  # Its marker is 4.
        await add(client, producer, [(TOPIC, [0])])
        assert await produce(client, TOPIC, producer, TV1_PRODUCE, sequence=1) == ErrorCode.NONE  # 5
        assert await member.acquired() == []
        assert await end(client, producer, commit=False, version=TV1_END) == (ErrorCode.NONE, (-1, -1))
        await until_state(client, "CompleteAbort")  # 6
        await at.produce(1)
        assert await member.acquired() == [(7, 7, 1)]
        assert await all_records.acquired([0]) == [(0, 3, 1), (5, 5, 1), (7, 7, 1)]
        for said in ((0, 1, ACCEPT), (2, 3, ACCEPT), (7, 7, ACCEPT)):
            assert await member.say(said) == {0: 0}
        # What was never delivered does not keep the group back.
        service = at.broker.process.serving.sharing.service
        led = service._partitions.find(SharePartitionId("g", at.topic_id, 0))
        assert led is not None
        assert led.machine.start_offset == 8
