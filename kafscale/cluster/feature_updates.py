"""Finalizing feature levels for the whole cluster, under Kafka's rules and one of our own: never downwards.

See docs/decisions/0019-feature-level.md.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import StoreError
from kafscale.formats.features import decode_level, encode_level, supported_by
from kafscale.formats.topic_record import decode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, FeatureRange
from kafscale.metadata.store import ABSENT, Compare, KeyValue, MetadataStore, Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

MIN_TIMEOUT_MS: Final = 1_000
"""The least wait, also for a client that asks for none."""

_NOT_FINALIZED: Final = 0


class UpgradeType(IntEnum):
    """The allowed directions of an update, by Kafka's numbers (KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureUpdate:
    """The level that a feature is to have. `upgrade_type` as the client sent it."""

    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class FeatureUpdates:
    """Writes finalized levels. Any broker may: what it read is compared when it writes."""

    def __init__(self, store: MetadataStore, view: ClusterView, *, retry_delay_sec: float = 0.1) -> None:
        self._store = store
        self._view = view
        self._retry_delay_sec = retry_delay_sec

    async def update(
        self, updates: Sequence[FeatureUpdate], *, timeout_ms: int, validate_only: bool = False
    ) -> None:
        """Finalize all of these levels or none, and wait until this broker sees them.

        A level that is finalized already is no error. Raises `KafkaError` INVALID_UPDATE_VERSION when one of
        them is not legal, or not supported by every live broker; REQUEST_TIMED_OUT, and what was begun may
        still come true.
        """
        by_feature = {one.feature: one for one in updates}
        try:
            async with asyncio.timeout(max(timeout_ms, MIN_TIMEOUT_MS) / 1000):
                revision = await self._decide(by_feature, validate_only)
                if not validate_only:
                    await self._view.wait_for(revision, keys.FEATURES)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"not done after {timeout_ms} ms; it may still be done"
            ) from None

    async def _decide(self, updates: Mapping[str, FeatureUpdate], validate_only: bool) -> int:
        """The revision at which all is in effect. Reads before every attempt: an earlier one may have landed."""
        while True:
            try:
                revision = await self._attempt(updates, validate_only)
            except StoreError as problem:
                logger.warning(
                    "the metadata store failed, reading the features again", extra={"problem": str(problem)}
                )
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if revision is not None:
                return revision

    async def _attempt(self, updates: Mapping[str, FeatureUpdate], validate_only: bool) -> int | None:
        """None when another broker wrote meanwhile."""
        brokers = [
            decode_broker_record(item.key, item.value)
            for item in (await self._store.range(keys.BROKERS)).items
        ]
        found = {name: await self._store.get(keys.feature(name)) for name in updates}
        current = {name: _level(item) for name, item in found.items()}
        for update in updates.values():
            _check(update, current[update.feature], brokers)
        changed = [one for one in updates.values() if one.level != current[one.feature]]
        if validate_only or not changed:
            return max((item.mod_revision for item in found.values() if item is not None), default=0)
        compares = [
            Compare(keys.feature(name), ABSENT if item is None else item.mod_revision)
            for name, item in found.items()
        ]
        puts = [Put(keys.feature(one.feature), encode_level(one.level)) for one in changed]
        result = await self._store.transact(compares, puts)
        if not result.succeeded:
            return None
        for one in changed:
            logger.info("finalized a feature level", extra={"feature": one.feature, "level": one.level})
        return result.revision


async def raise_level(store: MetadataStore, feature: str, level: int) -> None:
    """See to it that at least this level is finalized, while no broker lives: there is none to ask.

    Raises `StoreError`, after which it may be done again.
    """
    key = keys.feature(feature)
    while _level(found := await store.get(key)) < level:
        revision = ABSENT if found is None else found.mod_revision
        await store.transact([Compare(key, revision)], [Put(key, encode_level(level))])


def _level(found: KeyValue | None) -> int:
    return _NOT_FINALIZED if found is None else decode_level(found.key, found.value)


def _check(update: FeatureUpdate, current: int, brokers: Sequence[BrokerRecord]) -> None:
    problem = _problem(update, current, brokers)
    if problem is not None:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            "The update failed for all features since the following feature had an error: "
            f"Invalid update version {update.level} for feature {quoted(update.feature)}. {problem}",
        )


def _problem(update: FeatureUpdate, current: int, brokers: Sequence[BrokerRecord]) -> str | None:
    """In Kafka's words where Kafka has some."""
    if update.upgrade_type not in tuple(UpgradeType):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.level < current:
        # Kafka would ask for a downgrade where none was asked for; here that does not help either.
        return (
            f"Level {current} is finalized, and data may have been written that need it: it is never taken "
            "back, not by an unsafe downgrade either."
        )
    for broker in brokers:
        levels = supported_by(broker, update.feature)
        if update.level not in levels:
            return f"Broker {broker.broker_id} {_support_text(levels)}"
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _support_text(levels: FeatureRange) -> str:
    if levels.max_level == 0:
        return "does not support this feature."
    if levels.min_level == levels.max_level:
        return f"only supports version {levels.min_level}."
    return f"only supports versions {levels.min_level}-{levels.max_level}."
