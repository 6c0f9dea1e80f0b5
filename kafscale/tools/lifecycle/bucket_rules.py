"""Which lifecycle rules of the bucket the topics' retention implies: after how many days what may expire.

Theory of operation (docs/lifecycle.md). A broker removes a segment once its newest record is older than
`retention.ms`, by the record's timestamp. A bucket removes an object some days after the object's creation, and
rounds up to midnight (UTC). An object is never older than its records, so a rule that waits for the retention,
for what a timestamp may be ahead of the append, for the broker's own delays and for a safety margin never comes
before the broker. Rules add up: of several that match an object the shortest wins, and none can exclude a prefix.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.topic_config_table import CleanupPolicy, MessageTimestampType
from kafscale.cluster.topic_configs import TopicConfig
from kafscale.formats.object_keys import SYSTEM_FOLDER, namespace_prefix, topic_prefix

DAY_MS: Final = 86_400_000
MAX_DAYS: Final = 2**31 - 1
MAX_RULES: Final = 1000
MAX_ID_LENGTH: Final = 255
RULE_ID_PREFIX: Final = "kafscale/"

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One rule of the bucket; what is None does not happen."""

    rule_id: str
    prefix: str
    expiration_days: int | None = None
    noncurrent_days: int | None = None
    abort_multipart_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleOptions:
    """The operator's choice. `default_days`: when everything of the namespace expires, None for never.

    `noncurrent_days`: how long a versioned bucket keeps what was deleted, None to leave that alone.
    """

    default_days: int | None = None
    noncurrent_days: int | None = None
    abort_multipart_days: int = 7
    safety_days: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExpiry:
    """When the bucket may delete a topic's objects: after `days`, or never, and then `reason` says why."""

    topic: str
    retention_ms: int
    days: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecyclePlan:
    """The rules of a namespace, the namespace's own first, that of journals last, and what they were made from."""

    namespace: str
    rules: tuple[LifecycleRule, ...]
    topics: tuple[TopicExpiry, ...]
    new_topics: TopicExpiry


class LifecycleRefusedError(Exception):
    """Rules like these would delete records that are to be kept, or cannot be; `reasons` are lines for people."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = tuple(reasons)


def expiry_of(topic: str, config: TopicConfig, *, delay_ms: int, safety_days: int) -> TopicExpiry:
    """When the bucket may delete the objects of a topic.

    `delay_ms`: how long after its retention a broker may still name an object in a record.
    """

    def expiry(days: int | None, reason: str = "") -> TopicExpiry:
        return TopicExpiry(topic=topic, retention_ms=config.retention_ms, days=days, reason=reason)

    if CleanupPolicy.DELETE not in config.cleanup_policy:
        return expiry(None, f"cleanup.policy is {','.join(config.cleanup_policy) or 'empty'}")
    if config.retention_ms < 0:
        return expiry(None, "retention.ms is -1")
    ahead_ms = 0
    if config.message_timestamp_type is MessageTimestampType.CREATE_TIME:
        ahead_ms = config.message_timestamp_after_max_ms
    days = -(-(config.retention_ms + ahead_ms + delay_ms) // DAY_MS) + safety_days
    if days > MAX_DAYS:
        which = "retention.ms" if config.retention_ms > ahead_ms else "message.timestamp.after.max.ms"
        return expiry(None, f"{which} is beyond what a rule can say")
    return expiry(days)


def plan_rules(
    namespace: str,
    topics: Mapping[str, TopicConfig],
    new_topics: TopicConfig,
    options: LifecycleOptions,
    *,
    delay_ms: int,
) -> LifecyclePlan:
    """The rules for these topics. `new_topics`: what holds for a topic that sets nothing.

    Raises `LifecycleRefusedError`.
    """

    def expiry(topic: str, config: TopicConfig) -> TopicExpiry:
        return expiry_of(topic, config, delay_ms=delay_ms, safety_days=options.safety_days)

    plan = LifecyclePlan(
        namespace=namespace,
        rules=(),
        topics=tuple(expiry(topic, topics[topic]) for topic in sorted(topics)),
        new_topics=expiry("", new_topics),
    )
    if options.default_days is not None:
        _check_default(plan, options.default_days)
    rules = (
        _namespace_rule(namespace, options),
        *_topic_rules(plan, options.default_days),
        *_system_rules(namespace, options),
    )
    check_count(len(rules), options.default_days)
    return LifecyclePlan(namespace=namespace, rules=rules, topics=plan.topics, new_topics=plan.new_topics)


def check_count(count: int, default_days: int | None, foreign: int = 0) -> None:
    """Refuse more rules than a bucket can have; `foreign` of them are not ours."""
    if count <= MAX_RULES:
        return
    of_others = f", {foreign} of them not Kafscale's," if foreign else ""
    if default_days is None:
        advice = (
            "with --default-days N one rule covers every topic that expires after N days, N being at least what "
            "the topic that is kept longest needs"
        )
    else:
        advice = (
            "give topics the same retention.ms, so that --default-days covers more of them, or spread the topics "
            "over several buckets"
        )
    raise LifecycleRefusedError(
        [f"{count} rules{of_others} are more than the {MAX_RULES} that S3 takes for a bucket: {advice}"]
    )


def rule_id_of(namespace: str, topic: str | None) -> str:
    """The id of the rule of a topic, or of the namespace; a digest of it where it would be too long for S3."""
    return _id_of(namespace if topic is None else f"{namespace}/{topic}")


def _id_of(name: str) -> str:
    text = f"{RULE_ID_PREFIX}{name}"
    if len(text) <= MAX_ID_LENGTH:
        return text
    return RULE_ID_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def is_own(namespace: str, rule_id: str, prefix: str) -> bool:
    """True if a rule of the bucket is one of ours for this namespace."""
    prefixes = namespace_prefix(namespace), _system_prefix(namespace)
    return rule_id.startswith(RULE_ID_PREFIX) and prefix.startswith(prefixes)


def _namespace_rule(namespace: str, options: LifecycleOptions) -> LifecycleRule:
    return LifecycleRule(
        rule_id=rule_id_of(namespace, None),
        prefix=namespace_prefix(namespace),
        expiration_days=options.default_days,
        noncurrent_days=options.noncurrent_days,
        abort_multipart_days=options.abort_multipart_days,
    )


def _system_prefix(namespace: str) -> str:
    return f"{SYSTEM_FOLDER}/{namespace}/"


def _system_rules(namespace: str, options: LifecycleOptions) -> Iterator[LifecycleRule]:
    """Every record passes through an entry of a journal, which brokers delete: a versioned bucket keeps it.

    Nothing expires there, for only brokers know what is needed still.
    """
    if options.noncurrent_days is not None:
        prefix = _system_prefix(namespace)
        yield LifecycleRule(
            rule_id=_id_of(prefix.rstrip("/")), prefix=prefix, noncurrent_days=options.noncurrent_days
        )


def _topic_rules(plan: LifecyclePlan, default_days: int | None) -> Iterator[LifecycleRule]:
    for topic in plan.topics:
        # What expires no sooner than the namespace as a whole needs no rule of its own.
        if topic.days is not None and (default_days is None or topic.days < default_days):
            yield LifecycleRule(
                rule_id=rule_id_of(plan.namespace, topic.topic),
                prefix=topic_prefix(plan.namespace, topic.topic),
                expiration_days=topic.days,
            )


def _check_default(plan: LifecyclePlan, default_days: int) -> None:
    """No rule can exclude a prefix, so a rule for the namespace must suit every topic, also those to come."""
    longer = [topic for topic in plan.topics if topic.days is None or topic.days > default_days]
    reasons = [f"topic {topic.topic!r} {_kept(topic)}" for topic in longer[:_MOST_NAMED]]
    if len(longer) > _MOST_NAMED:
        reasons.append(f"and {len(longer) - _MOST_NAMED} more topics")
    new = plan.new_topics
    if new.days is None or new.days > default_days:
        reasons.append(f"a new topic that sets no retention.ms (KAFSCALE_RETENTION_MS) {_kept(new)}")
    if reasons:
        head = f"--default-days {default_days} would delete records that are to be kept: rules cannot exclude a topic"
        raise LifecycleRefusedError([head, *reasons])


def _kept(topic: TopicExpiry) -> str:
    return f"needs {topic.days} days" if topic.days is not None else f"is kept without limit: {topic.reason}"
