"""A coordinator that stops in good order leaves behind what it decided."""

import asyncio

from kafscale.groups.states import GroupState
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import GROUP, NEIGHBOUR, Brokers, Member, joined, scenario, stable


@scenario()
async def test_that_the_last_member_left_is_stored_before_the_stop(brokers: Brokers) -> None:
    """Or the next coordinator would wait for the session of somebody who said goodbye."""
    broker = await brokers.start()
    member = Member(broker, GROUP)
    await stable(member)
    with brokers.store.hold("transact", keys.group_offsets(NEIGHBOUR)) as held:
        commit = asyncio.create_task(Member(broker, NEIGHBOUR).commit(1))
        await held.until_reached()
        leaving = asyncio.create_task(member.leave())
        await asyncio.sleep(0)
        stopping = asyncio.create_task(broker.shards.close())
        await asyncio.sleep(0)
        held.release()
        await asyncio.gather(stopping, commit)
    assert (await leaving).error_code is ErrorCode.NOT_COORDINATOR
    following = await brokers.start()
    assert following.is_in(GROUP, GroupState.EMPTY)


@scenario()
async def test_assignment_in_flight_at_stop_is_never_handed_out(
    brokers: Brokers,
) -> None:
    broker = await brokers.start()
    members = [Member(broker, GROUP), Member(broker, GROUP)]
    await joined(*members)
    with brokers.store.hold("transact", "groups/") as held:
        syncing = [asyncio.create_task(member.sync()) for member in members]
        await held.until_reached()
        stopping = asyncio.create_task(broker.shards.close())
        answers = await asyncio.gather(*syncing)
        held.release()
        await stopping
    assert [answer.error_code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2
    following = await brokers.start()
    for member in members:
        member.broker = following
    await stable(*members)
