"""Changing the configs of groups. Any broker may: what it read is compared when it writes."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from kafscale.cluster.group_configs import check_group_configs
from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError, UnknownFormatVersionError
from kafscale.formats.group_config_record import decode_group_configs, encode_group_configs
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, MetadataStore, Put
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings

logger = logging.getLogger(__name__)

MAX_GROUPS: Final = 10_000
"""Groups with configs: every broker keeps all of them in memory."""

ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From a group's own configs to those after the change."""


class GroupConfigUpdates:
    """Writes configs, each group's by itself. The group need not be there."""

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        settings: Settings,
        *,
        max_groups: int = MAX_GROUPS,
        retry_delay_sec: float = 0.1,
    ) -> None:
        self._store = store
        self._view = view
        self._settings = settings
        self._max_groups = max_groups
        self._retry_delay_sec = retry_delay_sec

    async def alter(
        self, group_id: str, change: ConfigChange, *, timeout_ms: int, validate_only: bool = False
    ) -> None:
        """Replace the group's own configs by what `change` makes of them, and wait until this broker applies them.

        Raises `KafkaError`: INVALID_CONFIG, POLICY_VIOLATION for one group too many, KAFKA_STORAGE_ERROR for a
        record of a later release, REQUEST_TIMED_OUT, after which it may still come true, and what `change` raises.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                revision = await self._decide(group_id, change, validate_only)
                await self._view.wait_for(revision, keys.GROUP_CONFIGS)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"not done after {timeout_ms} ms; it may still be done"
            ) from None

    async def _decide(self, group_id: str, change: ConfigChange, validate_only: bool) -> int:
        """The revision at which all is in effect. Reads before every attempt: an earlier one may have landed."""
        while True:
            try:
                revision = await self._attempt(group_id, change, validate_only)
            except StoreError as problem:
                logger.warning(
                    "the metadata store failed, reading a group's configs again",
                    extra={"problem": str(problem)},
                )
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if revision is not None:
                return revision

    async def _attempt(self, group_id: str, change: ConfigChange, validate_only: bool) -> int | None:
        """None when another broker wrote meanwhile."""
        key = keys.group_configs(group_id)
        found = await self._store.get(key)
        before = _stored(found)
        after = change(before)
        check_group_configs(before, after, self._settings)
        if found is None and after and len(self._view.group_configs) >= self._max_groups:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"There are configs of {self._max_groups} groups already."
            )
        if validate_only or (found is None and not after):
            return 0
        if found is not None and before and after == before:
            return found.mod_revision
        operation = Put(key, encode_group_configs(after)) if after else Delete(key)
        revision = ABSENT if found is None else found.mod_revision
        result = await self._store.transact([Compare(key, revision)], [operation])
        if not result.succeeded:
            return None
        logger.info("changed group configs", extra={"group": quoted(group_id), "configs": dict(after)})
        return result.revision


def _stored(found: KeyValue | None) -> Mapping[str, str]:
    """The group's configs. A record that is damaged is replaced by the change."""
    if found is None:
        return {}
    try:
        return decode_group_configs(found.key, found.value)
    except UnknownFormatVersionError as problem:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The record is of a later release.") from problem
    except CorruptDataError:
        return {}
