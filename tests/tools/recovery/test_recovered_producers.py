"""Transactional producers of a cluster whose metadata store was lost in the middle of a transaction."""

import pytest

from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.protocol.error_codes import ErrorCode
from tests.handlers.test_transactions import add, begun, end, init, produce, until_state
from tests.support.decided_transactions import until_decided
from tests.support.in_process_broker import in_process_broker, until
from tests.tools.recovery.test_recovery_of_journals import snapshot, writer

TOPIC = "orders"


@pytest.mark.parametrize("with_backup", [False, True])
async def test_a_producer_goes_on_with_a_new_producer_id(with_backup: bool) -> None:
    async with in_process_broker() as first, first.connect() as client:
        await first.create_topic(TOPIC)
        old = await begun(client)
        assert await add(client, old, [(TOPIC, [0])]) == {(TOPIC, 0): ErrorCode.NONE}
        assert await produce(client, TOPIC, old, 11) == ErrorCode.NONE
        contents = await snapshot(first.metadata)
        assert not contents.unknown
        assert [record.producer_id for record in contents.transactions.values()] == [old[0]]
        # More epochs are given out, of which the snapshot knows nothing; and the last transaction stays open.
        for sequence in (1, 2):
            assert (await end(client, old, commit=True, version=4))[0] == ErrorCode.NONE
            await until_state(client, "CompleteCommit")
            assert await add(client, old, [(TOPIC, [0])]) == {(TOPIC, 0): ErrorCode.NONE}
            assert await produce(client, TOPIC, old, 11, sequence=sequence) == ErrorCode.NONE
        stuck_at = first.partition(TOPIC).last_stable_offset
        assert stuck_at < first.partition(TOPIC).high_watermark
    metadata = MemoryStore()
    rebuild = await writer(metadata, first.objects, contents if with_backup else None)
    await rebuild.write(skip_damaged=False)
    assert len((await metadata.range(keys.TRANSACTIONS)).items) == with_backup
    async with (
        in_process_broker(metadata=metadata, objects=first.objects) as second,
        second.connect() as client,
    ):
        logs = second.process.serving.logs
        await until(lambda: logs.partition(TOPIC, 0) is not None, "the partition is led")
        await until_decided(second, TOPIC)
        partition = second.partition(TOPIC)
        assert partition.last_stable_offset == partition.high_watermark
        assert [one.first_offset for one in partition.record.transactions.aborted] == [stuck_at]
        # The producer of before can neither write nor end anything.
        assert await produce(client, TOPIC, old, 11, sequence=3) != ErrorCode.NONE
        assert (await end(client, old, commit=True, version=4))[0] != ErrorCode.NONE
        code, new = await init(client)
        assert code == ErrorCode.NONE
        assert new[0] > old[0]
        assert new[1] == 0
        assert await add(client, new, [(TOPIC, [0])]) == {(TOPIC, 0): ErrorCode.NONE}
        assert await produce(client, TOPIC, new, 11) == ErrorCode.NONE
        assert (await end(client, new, commit=True, version=4))[0] == ErrorCode.NONE
        await until_state(client, "CompleteCommit")
        assert partition.last_stable_offset == partition.high_watermark
