"""A fuzzing run: a broker, a watcher beside it, and mutated frames over connections that are opened again."""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from kafka.protocol.admin import (
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from kafscale.protocol.api_keys import ApiKey
from tests.fuzz.mutations import Mutations
from tests.fuzz.sender import send_all
from tests.fuzz.tally import Tally
from tests.fuzz.valid_frames import GROUPS, TOPICS, ValidFrames, golden_payloads
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.topics import create_topics_request
from tests.support.watcher import TOPIC, watching

REPORT_SEC: Final = 10.0
TIDY_TIMEOUT_SEC: Final = 120.0
# Frames before the clean-up: topics and groups that damaged names made are not to become a load of their own.
TIDY_EVERY: Final = 20_000
LOG_LIMIT_BYTES: Final = 4 << 20
_GOLDEN_CHANCE: Final = 0.2
# What makes lasting things, and what takes much longer than others, in fewer frames than the rest.
SELDOM: Final = frozenset(
    {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS, ApiKey.UPDATE_FEATURES}
)
_SELDOM_CHANCE: Final = 0.05
NEVER: Final = frozenset({ApiKey.ALTER_CLIENT_QUOTAS})
"""A quota for all clients would, as it should, slow those that watch."""
FAILURE: Final = "a request failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a run."""

    frames: int
    seed: int
    most_seconds: float = math.inf
    connections: int = 64
    watcher_limit_sec: float = 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. `failures`: lines of the broker's log that show a defect."""

    tally: Tally
    seconds: float
    failures: list[str]


def mutated_frames(plan: Plan) -> Iterator[bytes]:
    """The run's frames: the same for the same seed."""
    chances = random.Random(plan.seed)
    valid, mutations, golden = ValidFrames(chances), Mutations(chances), golden_payloads()

    def one() -> bytes:
        if chances.random() < _GOLDEN_CHANCE:
            return chances.choice(golden)
        api_key, version = chances.choice(valid.kinds)
        while api_key in NEVER or (api_key in SELDOM and chances.random() > _SELDOM_CHANCE):
            api_key, version = chances.choice(valid.kinds)
        return valid.payload(api_key, version)

    other = one()
    for _ in range(plan.frames):
        payload = one()
        yield mutations.damaged(payload, other)
        other = payload


def fuzz(plan: Plan, folder: Path) -> Outcome:
    """Run it. Raises AssertionError for what the watcher saw, or a broker that ended."""
    print(f"seed {plan.seed}, {plan.frames:,} frames, {plan.connections} connections", flush=True)
    tally, began = Tally(), time.monotonic()
    with running_broker(folder, flush_interval_ms=100, auto_create_topics="false") as broker:
        tidy(broker)
        with watching(broker, limit_sec=plan.watcher_limit_sec, log_limit_bytes=LOG_LIMIT_BYTES) as watcher:
            frames = mutated_frames(plan)
            while (done := tally.frames) < plan.frames and time.monotonic() - began < plan.most_seconds:
                part = itertools.islice(frames, min(TIDY_EVERY, plan.frames - done))
                uvloop.run(_send(broker, part, plan, tally, began))
                tidy(broker)
            watcher.wait_for_rounds()
            print(f"watcher: {watcher.says()}", flush=True)
        log = broker.log_text()
    failures = [line for line in log.splitlines() if FAILURE in line]
    return Outcome(tally, time.monotonic() - began, failures)


async def _send(
    broker: KafscaleBroker, frames: Iterator[bytes], plan: Plan, tally: Tally, began: float
) -> None:
    reporting = asyncio.create_task(_report(broker, tally, began))
    try:
        await send_all((broker.host, broker.port), frames, tally, plan.connections)
    finally:
        reporting.cancel()


async def _report(broker: KafscaleBroker, tally: Tally, began: float) -> None:
    while True:
        await asyncio.sleep(REPORT_SEC)
        report(broker, tally, began)


def report(broker: KafscaleBroker, tally: Tally, began: float) -> None:
    """A line of progress."""
    seconds = time.monotonic() - began
    print(
        f"{seconds:6.0f} s  {tally.frames:,} frames ({tally.frames / seconds:,.0f}/s), "
        f"{tally.looked_at / max(1, tally.frames):.0%} looked at, {tally.connections:,} connections, "
        f"broker {broker.memory_bytes() >> 20} MiB, log {len(broker.log_text()) >> 10} KiB",
        flush=True,
    )


def tidy(broker: KafscaleBroker) -> None:
    """Make the topics that are there anew, and remove those and the groups that damaged names made."""
    with wire.connect(broker, TIDY_TIMEOUT_SEC) as connection:
        found = connection.call(MetadataRequest(topics=None), MetadataResponse, 8)
        names = {topic.name for topic in found.topics}
        strange = sorted(names - {TOPIC, *TOPICS})
        if strange:
            connection.call(
                DeleteTopicsRequest(topic_names=strange, timeout_ms=60_000), DeleteTopicsResponse, 3
            )
        for name in sorted({TOPIC, *TOPICS} - names):
            connection.call(create_topics_request(name, 2, None), CreateTopicsResponse, 7)
        groups = connection.call(ListGroupsRequest(), ListGroupsResponse, 2)
        strange = sorted({group.group_id for group in groups.groups} - set(GROUPS))
        if strange:
            connection.call(DeleteGroupsRequest(groups_names=strange), DeleteGroupsResponse, 1)
