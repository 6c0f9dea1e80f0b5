"""`kafscale lifecycle`: the bucket's expiry rules that the topics' retention implies, printed or applied."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from kafscale.broker.stores import open_stores
from kafscale.cluster.cluster_record import read_cluster_id
from kafscale.cluster.marker import read_marker
from kafscale.cluster.topic_configs import effective
from kafscale.commands.lifecycle_report import as_difference, as_json, as_table, as_terraform, warnings
from kafscale.errors import StartupError, StoreUnavailableError
from kafscale.extras import extra_needed
from kafscale.formats.topic_record import decode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import MetadataStore
from kafscale.protocol.error_codes import KafkaError
from kafscale.settings.broker import Settings
from kafscale.tools.lifecycle.bucket_name import s3_bucket_name
from kafscale.tools.lifecycle.bucket_rules import (
    LifecycleOptions,
    LifecyclePlan,
    LifecycleRefusedError,
    check_count,
    plan_rules,
)
from kafscale.tools.lifecycle.rule_text import RuleChange, changed_rules, same_rules

if TYPE_CHECKING:
    from kafscale.tools.lifecycle.bucket import BucketLifecycle

EXIT_DONE: Final = 0
EXIT_REFUSED: Final = 3
EXIT_DIFFERENT: Final = 4

# A bucket's configuration may be read as it was for a while after it was changed.
VERIFY_ATTEMPTS: Final = 10
VERIFY_PAUSE_SEC: Final = 1.0

Write = Callable[[str], None]


class Format(StrEnum):
    """How the rules are printed."""

    TABLE = "table"
    JSON = "json"
    TERRAFORM = "terraform"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleCommand:
    """The options of the command line. Without `apply` and `check` the rules are printed in `output_format`."""

    options: LifecycleOptions = field(default_factory=LifecycleOptions)
    output_format: Format = Format.TABLE
    apply: bool = False
    check: bool = False


def run(settings: Settings, command: LifecycleCommand, output: Write, errors: Write) -> int:
    """Do what the command says; returns the exit status.

    `output` takes what was asked for, `errors` warnings and refusals, both line by line. Raises
    `SettingError`, `StartupError`, `StoreError`, `CorruptDataError`.
    """
    bucket = s3_bucket_name(settings)
    touches_bucket = command.apply or command.check
    topics = asyncio.run(_read_topics(settings, check_bucket=touches_bucket))
    try:
        plan = plan_topics(settings, topics, command.options)
        if touches_bucket:
            return _bring_to_bucket(settings, command, plan, output, errors)
    except LifecycleRefusedError as refused:
        for reason in refused.reasons:
            errors(f"refused: {reason}")
        return EXIT_REFUSED
    match command.output_format:
        case Format.TABLE:
            own = {topic.name for topic in topics.values() if "retention.ms" in topic.configs}
            output(as_table(plan, bucket, own))
        case Format.JSON:
            output(as_json(plan))
        case Format.TERRAFORM:
            output(as_terraform(plan, bucket))
    return EXIT_DONE


def plan_topics(
    settings: Settings, topics: Mapping[str, TopicRecord], options: LifecycleOptions
) -> LifecyclePlan:
    """The rules for these topics of the metadata store. Raises `LifecycleRefusedError`."""
    configs, problems = {}, []
    for name, topic in topics.items():
        if topic.state is not TopicState.ACTIVE:
            continue  # its objects are being deleted; a rule of it goes with it
        try:
            configs[name] = effective(topic.configs, settings)
        except KafkaError as problem:
            problems.append(f"topic {name!r}: {problem.message}")
    if problems:
        raise LifecycleRefusedError(problems)
    delay_ms = settings.retention_check_interval_ms + settings.garbage_grace_sec * 1000
    return plan_rules(settings.s3_namespace, configs, effective({}, settings), options, delay_ms=delay_ms)


async def _read_topics(settings: Settings, *, check_bucket: bool) -> dict[str, TopicRecord]:
    async with contextlib.AsyncExitStack() as stack:
        metadata, objects = await open_stores(settings, stack)
        cluster_id = await read_cluster_id(metadata)
        if cluster_id is None:
            raise StartupError(
                "the metadata store belongs to no cluster yet, so it has no topics: check "
                "KAFSCALE_ETCD_ENDPOINTS and KAFSCALE_ETCD_PREFIX, or KAFSCALE_DATA_DIR"
            )
        if check_bucket:
            # Rules from another cluster's topics would delete this one's records.
            marked = await read_marker(objects, settings.s3_namespace)
            if marked != cluster_id:
                whose = "no cluster's" if marked is None else f"cluster {marked}'s"
                raise StartupError(
                    f"the metadata store belongs to cluster {cluster_id}, and namespace "
                    f"{settings.s3_namespace!r} of bucket {settings.s3_bucket} is {whose}: correct "
                    "KAFSCALE_S3_NAMESPACE, KAFSCALE_S3_BUCKET or the metadata store"
                )
        return await _topics(metadata)


async def _topics(metadata: MetadataStore) -> dict[str, TopicRecord]:
    snapshot = await metadata.range(keys.TOPICS)
    records = [decode_topic_record(item.key, item.value) for item in snapshot.items]
    return {record.name: record for record in records}


def _bring_to_bucket(
    settings: Settings, command: LifecycleCommand, plan: LifecyclePlan, output: Write, errors: Write
) -> int:
    with extra_needed("cluster", f"KAFSCALE_S3_BUCKET={settings.s3_bucket}"):
        from kafscale.tools.lifecycle.bucket import BucketLifecycle

    with contextlib.closing(BucketLifecycle(settings)) as lifecycle:
        before = lifecycle.read()
        change = changed_rules(before.rules, plan)
        output(as_difference(change, plan))
        for warning in warnings(change, plan):
            errors(warning)
        check_count(len(change.rules), command.options.default_days, len(change.kept))
        if change.is_empty:
            return EXIT_DONE
        if not command.apply:
            return EXIT_DIFFERENT
        lifecycle.replace(change.rules, before)
        _verify(lifecycle, change)
    output(f"Applied: bucket {settings.s3_bucket} has {len(change.rules)} rules.")
    return EXIT_DONE


def _verify(lifecycle: "BucketLifecycle", change: RuleChange) -> None:
    """Read back what was written, and again where the store still answers with what was before."""
    for attempt in range(VERIFY_ATTEMPTS):
        if attempt:
            time.sleep(VERIFY_PAUSE_SEC)
        found = lifecycle.read()
        if same_rules(found.rules, change.rules):
            return
    names = ", ".join(str(rule.get("ID", "")) for rule in found.rules[:20])
    raise StoreUnavailableError(
        "the bucket does not have the rules that were written: something else changed them at the same time, or "
        f"the store takes longer to show them. It has {len(found.rules)}: {names}. Run the command again"
    )
