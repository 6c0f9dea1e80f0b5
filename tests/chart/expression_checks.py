"""Checks that every expression in rules and dashboards must pass."""

import re
from collections.abc import Iterator, Mapping, Set
from typing import Final

from kafscale.groups.states import GroupState
from kafscale.metadata import memory_store as metadata_memory
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.objects import memory_store as objects_memory
from kafscale.objects.measured_store import MeasuredObjectStore
from kafscale.operator.etcd.seen import CORRUPT, NO_SPACE
from kafscale.operator.resource_status import Phase
from kafscale.ops import metrics as counted
from kafscale.ops.metric_families import MetricType
from kafscale.ops.request_stages import FetchStage, ProduceStage
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from tests.chart.known_metrics import KNOWN, TARGET_LABELS
from tests.chart.promql import RATES, Selector, groupings, selectors

COUNTING: Final = RATES | {"changes", "resets"}


def _object_store_operations() -> Set[str]:
    metrics = counted.Metrics(broker_id=0, version="")
    MeasuredObjectStore(objects_memory.MemoryStore(lambda: 0), metrics)
    return metrics.object_store_operations.keys()


def _metadata_store_operations() -> Set[str]:
    metrics = counted.Metrics(broker_id=0, version="")
    MeasuredMetadataStore(metadata_memory.MemoryStore(), metrics)
    return metrics.metadata_store_operations.keys()


_VALUES: Final[Mapping[tuple[str, str], Set[str]]] = {
    ("kafscale_request_errors_total", "api"): {one.name for one in ApiKey},
    ("kafscale_request_errors_total", "error"): {one.name for one in ErrorCode},
    ("kafscale_request_duration_seconds", "api"): {one.name for one in ApiKey},
    ("kafscale_request_stage_seconds", "api"): {ApiKey.FETCH.name, ApiKey.PRODUCE.name},
    ("kafscale_request_stage_seconds", "stage"): {*FetchStage, *ProduceStage},
    ("kafscale_request_active_seconds", "api"): {ApiKey.FETCH.name},
    ("kafscale_flushes_total", "outcome"): set(counted.FlushOutcome),
    ("kafscale_merges_total", "outcome"): set(counted.MergeOutcome),
    ("kafscale_segments_lost_total", "outcome"): set(counted.LossOutcome),
    ("kafscale_leadership_changes_total", "change"): set(counted.LeadershipChange),
    ("kafscale_object_store_probes_total", "outcome"): set(counted.ProbeOutcome),
    ("kafscale_object_store_health", "calls"): {"read", "write"},
    ("kafscale_object_store_duration_seconds", "operation"): _object_store_operations(),
    ("kafscale_metadata_store_duration_seconds", "operation"): _metadata_store_operations(),
    ("kafscale_segment_store_reads_total", "store"): {"primary", "replica"},
    ("kafscale_segment_store_misses_total", "store"): {"primary", "replica"},
    ("kafscale_cache_hits_total", "cache"): {"segment", "index"},
    ("kafscale_cache_misses_total", "cache"): {"segment", "index"},
    ("kafscale_groups", "state"): set(GroupState),
    ("kafscale_topic_resources", "phase"): set(Phase),
    ("kafscale_user_resources", "phase"): set(Phase),
    ("kafscale_etcd_alarm", "alarm"): {NO_SPACE, CORRUPT},
    ("up", "component"): {"broker", "etcd", "operator"},
}
"""Of labels whose values are known beforehand: which."""


def problems(expression: str, more_labels: Set[str] = frozenset()) -> Iterator[str]:
    """The problems of an expression; none if it is right. `more_labels`: those that every series has besides."""
    for selector in selectors(expression):
        if selector.metric not in KNOWN:
            yield f"there is no metric {selector.metric}"
            continue
        yield from _problems_of(selector, TARGET_LABELS | more_labels)
    for grouping in groupings(expression):
        there = TARGET_LABELS | more_labels
        for selector in grouping.selectors:
            there |= KNOWN[selector.metric][1] if selector.metric in KNOWN else frozenset()
        for label in sorted(set(grouping.labels) - there):
            yield f"no series of the aggregation has the label {label}: {expression}"


def _problems_of(selector: Selector, everywhere: Set[str]) -> Iterator[str]:
    kind, labels = KNOWN[selector.metric]
    if kind is MetricType.COUNTER and selector.function not in COUNTING:
        yield f"{selector.metric} only grows: its rate is what says something"
    if kind is MetricType.GAUGE and selector.function in RATES:
        yield f"{selector.metric} is a gauge and has no rate"
    for matcher in selector.matchers:
        if matcher.label not in labels | everywhere:
            yield f"{selector.metric} has no label {matcher.label}"
        metric = re.sub(r"_(bucket|sum|count)$", "", selector.metric)
        legal = _VALUES.get((metric, matcher.label))
        if legal is not None and not matcher.value.startswith("$"):
            values = matcher.value.split("|") if "~" in matcher.op else [matcher.value]
            yield from (
                f"{selector.metric} never has {matcher.label}={value}"
                for value in values
                if value not in legal
            )
