"""Share groups seen by commands: dumped beside the broker, checked, kept in a backup, and restored from it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafscale.commands.cli import main
from kafscale.metadata import keys
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import Put
from kafscale.protocol import api_messages as m
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.in_process_broker import Client
from tests.support.share_member import ACCEPT, REJECT, ShareMember
from tests.support.topics import create_topic

pytestmark = pytest.mark.usefixtures("logging_as_before")

TOPIC, GROUP = "tasks", "workers"


def call(broker: KafscaleBroker, *arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env=broker.environment())


@contextlib.asynccontextmanager
async def connected(broker: KafscaleBroker) -> AsyncIterator[Client]:
    with socket.socket() as connection:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (broker.host, broker.port))
        yield Client(connection)


async def joined(client: Client) -> ShareMember:
    """A member that was given the topic's only partition."""
    request = m.ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="a", member_epoch=0, rack_id="r", subscribed_topic_names=[TOPIC]
    )
    answer = await client.call(request, m.ShareGroupHeartbeatResponse, 1)
    assert answer.error_code == 0, answer
    (topic,) = answer.assignment.topic_partitions
    return ShareMember(client, topic.topic_id, group=GROUP)


async def work(broker: KafscaleBroker) -> None:
    """Begin at the first record; finish records 0 to 2, reject 4."""
    async with connected(broker) as client:
        member = await joined(client)
        assert await member.acquired([0]) == [(0, 5, 1)]
        assert await member.say((0, 2, ACCEPT), (4, 4, REJECT)) == {0: 0}


async def next_records(broker: KafscaleBroker) -> list[tuple[int, int, int]]:
    async with connected(broker) as client:
        return await (await joined(client)).acquired([0])


def dumped(broker: KafscaleBroker, *arguments: str) -> list[dict[str, Any]]:
    result = call(broker, "dump", "--groups", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


async def damage(broker: KafscaleBroker, key: str) -> None:
    store = await SqliteStore.open(broker.data_folder / "metadata.db", fsync=False)
    try:
        await store.transact([], [Put(key, b"\0\x09")])
    finally:
        await store.close()


def test_share_groups_are_dumped_checked_and_restored(tmp_path: Path) -> None:
    with running_broker(tmp_path, flush_interval_ms=0) as broker:
        create_topic(broker, TOPIC)
        with wire.connect(broker) as connection:
            wire.produce(connection, TOPIC, 0, wire.batch([b"record"] * 6))
        configured = configure_earliest(broker)
        assert configured == 0
        asyncio.run(work(broker))
        found = dumped(broker)
        assert [one["type"] for one in found] == ["group", "member", "shareStart", "shareState"]
        group, member, start, state = found
        assert (group["kind"], member["rack"], member["topics"]) == ("share", "r", [TOPIC])
        assert (start["startOffset"], state["startOffset"]) == (-1, 3)
        assert [(run["first"], run["state"], run["deliveryCount"]) for run in state["runs"]] == [
            (3, "available", 1),
            (4, "archived", 1),
            (5, "available", 1),
        ]
        assert dumped(broker, "--group", GROUP) == found
        assert dumped(broker, "--group", "another") == []
        text = call(broker, "dump", "--groups").stdout
        assert f"shareState: group: {GROUP} topicId: " in text
        broker.stop()

        assert call(broker, "fsck").exit_code == 0
        assert call(broker, "backup", "create").exit_code == 0
        for file in broker.data_folder.glob("metadata.db*"):
            file.unlink()
        recovered = call(broker, "recover", "--backup", "newest", "--apply")
        assert recovered.exit_code == 0, recovered.output
        after = {one["type"]: one for one in dumped(broker)}
        assert after["shareState"] == state
        assert "member" not in after
        assert after["group"]["groupEpoch"] > group["groupEpoch"]
        assert call(broker, "fsck").exit_code == 0

        broker.start()
        assert asyncio.run(next_records(broker)) == [(3, 3, 2), (5, 5, 2)]
        broker.stop()

        place = next(key for key in keys_of(broker) if key.startswith(keys.SHARE_STATES))
        asyncio.run(damage(broker, place))
        bad = call(broker, "dump", "--groups", "--json")
        assert (bad.exit_code, place in bad.stderr) == (1, True)
        assert json.loads(bad.stdout.splitlines()[-1])["type"] == "problem"
        checked = call(broker, "fsck", "--json")
        assert checked.exit_code == 3
        assert [one["kind"] for one in json.loads(checked.stdout)["findings"]] == ["SHARE_UNREADABLE"]


def configure_earliest(broker: KafscaleBroker) -> int:
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    request = m.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=32, resource_name=GROUP, configs=[config])], validate_only=False
    )

    async def ask() -> Any:
        async with connected(broker) as client:
            return await client.call(request, m.IncrementalAlterConfigsResponse, 1)

    return int(asyncio.run(ask()).responses[0].error_code)


def keys_of(broker: KafscaleBroker) -> list[str]:
    async def read() -> list[str]:
        store = await SqliteStore.open(broker.data_folder / "metadata.db", fsync=False)
        try:
            return [item.key for item in (await store.range("")).items]
        finally:
            await store.close()

    return asyncio.run(read())


@pytest.mark.parametrize("arguments", [(), ("--groups", "file.kfs"), ("--group", "g", "--verify")])
def test_options_that_do_not_go_together_are_refused(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, ["dump", *arguments])
    assert result.exit_code == 2
    assert "--groups" in result.output
