"""Fetches under the configs of a share group and the settings of the broker, with the answers of Kafka 4.2."""

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kafscale.cluster.group_configs import (
    SHARE_AUTO_OFFSET_RESET,
    SHARE_ISOLATION_LEVEL,
    SHARE_RECORD_LOCK_DURATION,
)
from kafscale.formats.group_config_record import encode_group_configs
from kafscale.formats.share_start_record import AS_CONFIGURED
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import Put
from kafscale.ops.metric_export import render
from kafscale.protocol.error_codes import ErrorCode
from kafscale.share.state.operations import Change, alter
from tests.share.state.partitions import apply
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.share_member import ACCEPT, REJECT, RELEASE, RENEW, ShareMember

MINUTE_MS = 60_000


class Setting:
    """A broker with a topic, and a client."""

    def __init__(self, broker: InProcessBroker, client: Client, topic_id: uuid.UUID) -> None:
        self.broker, self.client, self.topic_id = broker, client, topic_id

    async def produce(self, count: int, age_ms: int = 0) -> None:
        timestamp = int(time.time() * 1000) - age_ms
        part = await self.client.produce("topic", 0, wire.batch([b"v"] * count, timestamp=timestamp))
        assert part.error_code == 0

    async def configure(self, group: str, configs: dict[str, str]) -> None:
        key = keys.group_configs(group)
        await self.broker.metadata.transact([], [Put(key, encode_group_configs(configs))])
        view = self.broker.process.serving.view
        await until(lambda: view.group_configs.get(key) == configs, "the watch")

    async def member(self, name: str = "a", group: str = "g", offset: int = 0) -> ShareMember:
        """Of a group that begins at the offset."""
        await apply(
            self.broker.metadata,
            alter({SharePartitionId(group, self.topic_id, 0): offset}, {}, Change(0)).operations,
        )
        return ShareMember(self.client, self.topic_id, group=group, member=name)


@asynccontextmanager
async def setting(**settings: Any) -> AsyncIterator[Setting]:
    async with in_process_broker(**settings) as broker, broker.connect() as client:
        await broker.create_topic(partitions=1)
        record = broker.process.serving.view.topic("topic")
        assert record is not None
        yield Setting(broker, client, record.topic_id)


async def test_a_group_begins_where_its_config_says() -> None:
    resets = {
        "by default": None,
        "latest": "latest",
        "earliest": "earliest",
        "an hour": "by_duration:PT1H",
        "a day": "by_duration:P1D",
        "now": "by_duration:PT0S",
        "a minute": "by_duration:PT1M",
    }
    async with setting() as at:
        await at.produce(5, 120 * MINUTE_MS)
        await at.produce(3, 30 * MINUTE_MS)
        members = {}
        for group, reset in resets.items():
            if reset is not None:
                await at.configure(group, {SHARE_AUTO_OFFSET_RESET: reset})
            members[group] = await at.member(group=group, offset=AS_CONFIGURED)
        begun = {group: await member.acquired([0]) for group, member in members.items()}
        assert {group: acquired for group, acquired in begun.items() if acquired} == {
            "earliest": [(0, 7, 1)],
            "an hour": [(5, 7, 1)],
            "a day": [(0, 7, 1)],
        }
        await at.produce(1)
        for group, member in members.items():
            assert await member.acquired() == [(8, 8, 1)], group


async def test_changed_configs_hold_from_the_next_fetch_on() -> None:
    async with setting() as at:
        member = await at.member()
        await at.produce(2)
        assert await member.acquired([0]) == [(0, 1, 1)]
        assert member.answer.acquisition_lock_timeout_ms == 30_000
        changed = {SHARE_RECORD_LOCK_DURATION: "20000", SHARE_ISOLATION_LEVEL: "read_committed"}
        await at.configure("g", changed)
        await at.produce(1)
        assert await member.acquired() == [(2, 2, 1)]
        assert member.answer.acquisition_lock_timeout_ms == 20_000
        service = at.broker.process.serving.sharing.service
        assert service.policy("g").reads_committed
        assert not service.policy("another").reads_committed


async def test_settings_bound_sessions_and_deliveries_all_counted() -> None:
    async with setting(group_share_max_share_sessions=1, group_share_delivery_count_limit=2) as at:
        member = await at.member()
        await at.produce(4)
        assert await member.acquired([0]) == [(0, 3, 1)]
        other = ShareMember(at.client, at.topic_id, member="b")
        assert await other.fetch([0]) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert await member.say((0, 0, ACCEPT), (1, 1, REJECT), (2, 3, RELEASE)) == {0: 0}
        assert await member.acquired() == [(2, 3, 2)]
        assert await member.say((2, 3, RENEW), may_renew=True) == {0: 0}
        assert await member.say((2, 3, RELEASE)) == {0: 0}
        assert await member.fetch() == {}, "both deliveries are over"
        text = render(at.broker.metrics).decode()
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("kafscale_share_"))
        assert {name.removeprefix("kafscale_share_"): float(value) for name, value in lines.items()} == {
            "sessions": 1,
            "sessions_limit": 1,
            "partitions_open": 1,
            'records_acquired_total{group="g"}': 6,
            'records_acknowledged_total{group="g",type="accept"}': 1,
            'records_acknowledged_total{group="g",type="reject"}': 1,
            'records_acknowledged_total{group="g",type="release"}': 4,
            'records_acknowledged_total{group="g",type="renew"}': 2,
            'records_timed_out_total{group="g"}': 0,
            'records_archived_total{group="g",reason="deliveries"}': 2,
            'records_archived_total{group="g",reason="rejected"}': 1,
            'records_archived_total{group="g",reason="gap"}': 0,
            "partitions_refused_total": 0,
            "group_lag_series": 0,
            "group_lag_series_omitted": 0,
            "runs": 0,
            "runs_limit": 500_000,
        }
