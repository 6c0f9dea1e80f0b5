"""Changing client quotas. Any broker may: what it read is compared when it writes."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError, UnknownFormatVersionError
from kafscale.formats.quota_record import QuotaEntity, decode_quotas, encode_quotas, quota_key
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, MetadataStore, Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.security.quota_rules import changed_quotas

logger = logging.getLogger(__name__)

MAX_ENTITIES: Final = 100_000
"""Entities with quotas: every broker keeps all of them in memory."""


class QuotaUpdates:
    """Writes quotas, each entity's by itself."""

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        *,
        max_entities: int = MAX_ENTITIES,
        retry_delay_sec: float = 0.1,
    ) -> None:
        self._store = store
        self._view = view
        self._max_entities = max_entities
        self._retry_delay_sec = retry_delay_sec

    async def alter(
        self,
        entity: QuotaEntity,
        changes: Mapping[str, float | None],
        *,
        timeout_ms: int,
        validate_only: bool = False,
    ) -> None:
        """Set and (with None) remove quotas of an entity, and wait until this broker applies them.

        Raises `KafkaError`: INVALID_REQUEST for a quota that the entity cannot have, POLICY_VIOLATION for one entity
        too many, KAFKA_STORAGE_ERROR for a record of a later release, REQUEST_TIMED_OUT, after which it may still
        come true.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                revision = await self._decide(entity, changes, validate_only)
                await self._view.wait_for(revision, keys.QUOTAS)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"not done after {timeout_ms} ms; it may still be done"
            ) from None

    async def _decide(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], validate_only: bool
    ) -> int:
        """The revision at which all is in effect. Reads before every attempt: an earlier one may have landed."""
        while True:
            try:
                revision = await self._attempt(entity, changes, validate_only)
            except StoreError as problem:
                logger.warning(
                    "the metadata store failed, reading quotas again", extra={"problem": str(problem)}
                )
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if revision is not None:
                return revision

    async def _attempt(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], validate_only: bool
    ) -> int | None:
        """None when another broker wrote meanwhile."""
        key = quota_key(entity)
        found = await self._store.get(key)
        before = _stored(found)
        after = changed_quotas(entity, before, changes)
        if found is None and after and len(self._view.quotas) >= self._max_entities:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"There are quotas of {self._max_entities} entities already."
            )
        if validate_only or (found is None and not after) or (before and after == before):
            return 0
        operation = Put(key, encode_quotas(after)) if after else Delete(key)
        revision = ABSENT if found is None else found.mod_revision
        result = await self._store.transact([Compare(key, revision)], [operation])
        if not result.succeeded:
            return None
        shown = {kind: quoted(name) or "<default>" for kind, name in entity.parts()}
        logger.info("changed client quotas", extra={"entity": shown, "quotas": dict(after)})
        return result.revision


def _stored(found: KeyValue | None) -> Mapping[str, float]:
    """The entity's quotas. A record that is damaged is replaced by the change."""
    if found is None:
        return {}
    try:
        return decode_quotas(found.key, found.value)
    except UnknownFormatVersionError as problem:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The record is of a later release.") from problem
    except CorruptDataError:
        return {}
