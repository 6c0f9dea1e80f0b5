"""Requests in the words of callers, and the plan of one."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from kafscale.formats.object_keys import topic_name_problem
from kafscale.metadata.store import MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.reader.aborted_batches import IsolationLevel
from kafscale.reader.bounds import Edge, PointLike, ReadOptionError, parse_bound
from kafscale.reader.bucket_alone import BucketAlone, OnRead
from kafscale.reader.sources import ReadSource, StoresSource, has_metadata_store, settings_of_source
from kafscale.reader.store_thread import StoreThread
from kafscale.reader.topic_plan import OnExpired, ReadRequest, TopicPlan, TopicPlanner

logger = logging.getLogger(__name__)


def source_of(
    source: str | os.PathLike[str] | None,
    topic: str,
    *,
    options: Mapping[str, str],
    environment: Mapping[str, str],
    on_checked: OnRead | None = None,
) -> ReadSource:
    """The stores that a read of the topic uses; nothing is opened yet.

    `on_checked` is called with the bytes of each object that a bucket alone makes it check. Raises
    `ReadOptionError`, `SettingError`.
    """
    settings = settings_of_source(source, options, environment)
    if has_metadata_store(settings, source):
        return StoresSource(settings)
    return BucketAlone(settings, topic, on_checked or (lambda _: None))


def request_of(
    topic: str,
    *,
    start: PointLike | Mapping[int, PointLike] | None = None,
    end: PointLike | Mapping[int, PointLike] | None = None,
    partitions: Sequence[int] | None = None,
    on_expired: str = OnExpired.ERROR,
    isolation_level: str = IsolationLevel.READ_COMMITTED,
) -> ReadRequest:
    """The request by the parameters of `kafscale.read`. Raises `ReadOptionError`."""
    problem = topic_name_problem(topic) if isinstance(topic, str) else "it must be text"
    if problem is not None:
        raise ReadOptionError(f"topic={_shown(topic)} is not legal: {problem}")
    if on_expired not in tuple(OnExpired):
        legal = " or ".join(OnExpired)
        raise ReadOptionError(f"on_expired={_shown(on_expired)} is not legal: it must be {legal}")
    if isolation_level not in tuple(IsolationLevel):
        legal = " or ".join(IsolationLevel)
        raise ReadOptionError(f"isolation_level={_shown(isolation_level)} is not legal: it must be {legal}")
    return ReadRequest(
        topic=topic,
        start=parse_bound("start", start, Edge.EARLIEST),
        end=parse_bound("end", end, Edge.LATEST),
        partitions=_checked_partitions(partitions),
        on_expired=OnExpired(on_expired),
        isolation_level=IsolationLevel(isolation_level),
    )


def _checked_partitions(partitions: Sequence[int] | None) -> Sequence[int] | None:
    if partitions is None:
        return None
    legal = "it must be a list of whole numbers from 0, or None for all"
    try:
        found: list[object] = list(partitions)
    except TypeError:
        found = []
    if not found:
        raise ReadOptionError(f"partitions={_shown(partitions)} is not legal: {legal}")
    checked = [one for one in found if isinstance(one, int) and not isinstance(one, bool) and one >= 0]
    if len(checked) < len(found):
        raise ReadOptionError(f"partitions={_shown(partitions)} is not legal: {legal}")
    return checked


def _shown(value: Any) -> str:
    return repr(value)[:200]


def plan_of(source: ReadSource, request: ReadRequest) -> TopicPlan:
    """The read, planned now: all that was acknowledged before the call is in it. The stores are closed again.

    Raises `UnknownTopicError`, `ReadOptionError`, `OffsetsGoneError`, `CorruptDataError`, `StoreError`,
    `StartupError`.
    """

    async def plan(metadata: MetadataReader, objects: ListingReader) -> TopicPlan:
        namespace = source.settings.s3_namespace
        planner = TopicPlanner(metadata, objects, namespace, request.topic, request.isolation_level)
        return await planner.plan(request)

    with StoreThread(source) as stores:
        found = stores.call(plan)
    if isinstance(source, BucketAlone):
        for one in found.ranges:
            for note in source.check_range(one.partition, one.first_offset, one.next_offset):
                logger.warning(note)
    return found
