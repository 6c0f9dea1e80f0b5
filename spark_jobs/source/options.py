"""Parses the options of a query: the store, the topics, the start and end, and the splitting."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from kafscale.lake.offset_points import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    LogEdge,
    OffsetPoint,
    SourceOptionError,
    SpecificOffsets,
    parse_assignment,
    parse_offsets,
    parse_ranges,
    parse_timestamp,
    parse_timestamps,
    parse_topic_ids,
)
from kafscale.lake.ranges import Ranges
from kafscale.reader.aborted_batches import IsolationLevel
from kafscale.reader.splits import DEFAULT_SPLIT_BYTES
from kafscale.reader.topic_state import Freshness, PartitionKey
from kafscale.settings.broker import PREFIX, SETTINGS, Settings, load_settings, unknown_settings
from kafscale.settings.kinds import Kind, boolean, integer, size
from spark_jobs.source import option_rows as names
from spark_jobs.source.option_rows import SOURCE_OPTIONS, STORE_OPTIONS
from spark_jobs.source.trigger_options import TriggerOptions, parse_trigger, require_none

T = TypeVar("T")
Choice = TypeVar("Choice", bound=StrEnum)

_MAX_INT32 = 2**31 - 1
_POSITIVE = integer(1, _MAX_INT32)
_SPLIT_SIZE = size(64 * 2**10, 2**50)


@dataclass(frozen=True, slots=True)
class Topics:
    """These topics, all partitions."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """The topics whose whole name matches, all partitions."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """These partitions, ascending, of these topics."""

    partitions: Mapping[str, tuple[int, ...]]


Subscription = Topics | TopicPattern | Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one query, apart from where the stores are.

    `starting` and `ending`: None if not given. `latest_without_match`: a partition without a record as new as its
    starting time starts at its end instead of failing the query. `topic_ids`: those that topics must have.
    `except_offsets`: those between start and end that are not read.
    """

    subscription: Subscription
    starting: OffsetPoint | None = None
    ending: OffsetPoint | None = None
    latest_without_match: bool = False
    min_partitions: int | None = None
    trigger: TriggerOptions = field(default_factory=TriggerOptions)
    fail_on_data_loss: bool = True
    include_headers: bool = True
    split_bytes: int = DEFAULT_SPLIT_BYTES
    task_bytes: int | None = None
    freshness: Freshness = Freshness.PUBLISHED
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    except_offsets: Mapping[PartitionKey, Ranges] = field(default_factory=dict)


def settings_of(options: Mapping[str, str], environment: Mapping[str, str]) -> Settings:
    """The location of the stores: the options override the environment.

    Reads the options that `STORE_OPTIONS` names and those named like settings, in any case. The data folder of the
    result is absolute, because other processes open it from other folders. Raises `SourceOptionError`,
    `SettingError`.
    """
    given = {name.lower(): value for name, value in options.items()}
    chosen = {name.upper(): value for name, value in given.items() if name.startswith(PREFIX.lower())}
    unknown = unknown_settings(chosen)
    if unknown:
        raise SourceOptionError(f"option {unknown[0]}")
    for row in STORE_OPTIONS:
        if row.name.lower() not in given:
            continue
        if row.variable in chosen:
            raise SourceOptionError(
                f"options {row.name} and {row.variable} are the same setting: give one of them"
            )
        chosen[row.variable] = _store_value(row.name, row.variable, given[row.name.lower()])
    known = {row.variable for row in SETTINGS}
    settings = load_settings(
        {name: value for name, value in environment.items() if name in known and name not in chosen} | chosen
    )
    if "datadir" in given and settings.etcd_endpoints and settings.s3_bucket:
        raise SourceOptionError(
            f"option dataDir={given['datadir']!r} has no effect, because etcd and a bucket are set, by an "
            "option or in the environment (KAFSCALE_ETCD_ENDPOINTS, KAFSCALE_S3_BUCKET): give one store"
        )
    return replace(settings, data_dir=Path(settings.data_dir).absolute())


def _store_value(name: str, variable: str, value: str) -> str:
    row = next(row for row in SETTINGS if row.variable == variable)
    try:
        row.kind.parse(value.strip())
    except ValueError:
        raise SourceOptionError(
            f"option {name}={value!r} is not legal: it must be {row.kind.legal}"
        ) from None
    return value


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of a query; names in any case, as Spark passes them.

    Raises `SourceOptionError` for an option that is unknown, not legal, or contradicts another one.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    split_bytes = _value(given, names.SPLIT_BYTES, _SPLIT_SIZE)
    fail_on_data_loss = _value(given, names.FAIL_ON_DATA_LOSS, boolean())
    include_headers = _value(given, names.INCLUDE_HEADERS, boolean())
    return SourceOptions(
        subscription=_subscription(given),
        starting=_point(given, names.STARTING),
        ending=_point(given, names.ENDING),
        latest_without_match=_strategy(given) == "latest",
        min_partitions=_value(given, names.MIN_PARTITIONS, _POSITIVE),
        trigger=parse_trigger(given),
        fail_on_data_loss=True if fail_on_data_loss is None else fail_on_data_loss,
        include_headers=True if include_headers is None else include_headers,
        split_bytes=DEFAULT_SPLIT_BYTES if split_bytes is None else split_bytes,
        task_bytes=_value(given, names.TASK_BYTES, _SPLIT_SIZE),
        freshness=_one_of(given, names.FRESHNESS, Freshness.PUBLISHED),
        isolation_level=_one_of(given, names.ISOLATION_LEVEL, IsolationLevel.READ_COMMITTED),
        topic_ids=_topic_ids(given),
        except_offsets=_except_offsets(given),
    )


def batch_points(options: SourceOptions) -> tuple[OffsetPoint, OffsetPoint]:
    """Start and end of a batch. Raises `SourceOptionError` for points that are legal for streams only."""
    starting = LogEdge.EARLIEST if options.starting is None else options.starting
    ending = LogEdge.LATEST if options.ending is None else options.ending
    if _holds(starting, LogEdge.LATEST, LATEST_OFFSET):
        raise SourceOptionError(
            f"option {names.STARTING_OFFSETS} cannot be latest (or -1) in a batch, which would read nothing: give "
            "earliest, an offset or a timestamp"
        )
    if _holds(ending, LogEdge.EARLIEST, EARLIEST_OFFSET):
        raise SourceOptionError(
            f"option {names.ENDING_OFFSETS} cannot be earliest (or -2), which would read nothing: give latest, an "
            "offset or a timestamp"
        )
    require_none(options.trigger)
    return starting, ending


def stream_start(options: SourceOptions) -> OffsetPoint:
    """The start of a new stream. Raises `SourceOptionError` for points that are legal for batches only."""
    if options.ending is not None:
        raise SourceOptionError(
            f"a stream has no end: {_listed(names.ENDING)} are legal in a batch only; use spark.read for a range, or "
            f"{names.AVAILABLE_NOW} for what there is now"
        )
    return LogEdge.LATEST if options.starting is None else options.starting


def _holds(point: OffsetPoint, edge: LogEdge, offset: int) -> bool:
    return point is edge or (isinstance(point, SpecificOffsets) and offset in point.offsets.values())


def _refuse_unknown(given: Mapping[str, str]) -> None:
    legal = [*(row.name for row in SOURCE_OPTIONS), *(row.name for row in STORE_OPTIONS)]
    known = {name.lower(): name for name in legal}
    refused = {name.lower(): hint for name, hint in names.REFUSED.items()}
    for name in sorted(given):
        if name in known or name.startswith(PREFIX.lower()):
            continue
        hint = refused.get(name)
        if hint is None and name.startswith(names.KAFKA_PREFIX):
            hint = names.KAFKA_HINT
        if hint is not None:
            raise SourceOptionError(f"option {name} is not legal here: {hint}")
        near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
        meant = f", did you mean {known[near[0]]}?" if near else "."
        raise SourceOptionError(
            f"option {name} is unknown{meant} Legal are {_listed(legal)}, and every setting of the stores by its "
            f"name ({PREFIX}...)"
        )


def _subscription(given: Mapping[str, str]) -> Subscription:
    option = _only_one(given, names.WHICH_TOPICS)
    if option is None:
        raise SourceOptionError(f"no topics: give one of the options {_listed(names.WHICH_TOPICS)}")
    value = given[option.lower()]
    if option == names.ASSIGN:
        return Assignment(parse_assignment(option, value))
    if option == names.SUBSCRIBE_PATTERN:
        try:
            re.compile(value.strip())
        except re.error as problem:
            raise SourceOptionError(
                f"option {option}={value!r} is not legal: it must be a regular expression of Python's ({problem})"
            ) from None
        if not value.strip():
            raise SourceOptionError(f"option {option}={value!r} is not legal: it must not be empty")
        return TopicPattern(value.strip())
    topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not topics:
        raise SourceOptionError(
            f"option {option}={value!r} is not legal: it must be topics with commas between"
        )
    return Topics(topics)


def _point(given: Mapping[str, str], options: tuple[str, ...]) -> OffsetPoint | None:
    option = _only_one(given, options)
    if option is None:
        return None
    value = given[option.lower()]
    if option in (names.STARTING_OFFSETS, names.ENDING_OFFSETS):
        return parse_offsets(option, value)
    if option in (names.STARTING_TIMESTAMP, names.ENDING_TIMESTAMP):
        return parse_timestamp(option, value)
    return parse_timestamps(option, value)


def _only_one(given: Mapping[str, str], options: tuple[str, ...]) -> str | None:
    """The only one given. Spark's Kafka source would silently prefer one of several."""
    found = [option for option in options if option.lower() in given]
    if len(found) > 1:
        raise SourceOptionError(f"options {_listed(found)} contradict each other: give one of them")
    return found[0] if found else None


def _strategy(given: Mapping[str, str]) -> str:
    text = given.get(names.TIMESTAMP_STRATEGY.lower(), "error")
    if text.strip().lower() not in ("error", "latest"):
        raise SourceOptionError(
            f"option {names.TIMESTAMP_STRATEGY}={text!r} is not legal: it must be error or latest"
        )
    return text.strip().lower()


def _topic_ids(given: Mapping[str, str]) -> Mapping[str, UUID]:
    text = given.get(names.TOPIC_IDS.lower())
    return {} if text is None else parse_topic_ids(names.TOPIC_IDS, text)


def _except_offsets(given: Mapping[str, str]) -> Mapping[PartitionKey, Ranges]:
    text = given.get(names.EXCEPT_OFFSETS.lower())
    return {} if text is None else parse_ranges(names.EXCEPT_OFFSETS, text)


def _one_of(given: Mapping[str, str], option: str, default: Choice) -> Choice:
    text = given.get(option.lower(), default.value)
    try:
        return type(default)(text.strip().lower())
    except ValueError:
        legal = " or ".join(type(default))
        raise SourceOptionError(f"option {option}={text!r} is not legal: it must be {legal}") from None


def _value(given: Mapping[str, str], option: str, kind: Kind[T]) -> T | None:
    text = given.get(option.lower())
    if text is None:
        return None
    try:
        return kind.parse(text.strip())
    except ValueError:
        raise SourceOptionError(f"option {option}={text!r} is not legal: it must be {kind.legal}") from None


def _listed(options: Iterable[str]) -> str:
    return ", ".join(options)
