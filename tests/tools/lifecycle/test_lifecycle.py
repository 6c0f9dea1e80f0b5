"""Which rules the topics' retention implies: never before a broker, never for what is kept without limit."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.topic_configs import TopicConfig, effective
from kafscale.settings.broker import Settings
from kafscale.tools.lifecycle.bucket_rules import (
    DAY_MS,
    MAX_DAYS,
    MAX_ID_LENGTH,
    MAX_RULES,
    LifecycleOptions,
    LifecyclePlan,
    LifecycleRefusedError,
    expiry_of,
    is_own,
    plan_rules,
    rule_id_of,
)

HOUR_MS = 3_600_000
SETTINGS = Settings()


def topic(**configs: object) -> TopicConfig:
    """A topic's configs in effect; `retention_ms` stands for `retention.ms`."""
    return effective({name.replace("_", "."): str(value) for name, value in configs.items()}, SETTINGS)


def plan(topics: dict[str, TopicConfig], namespace: str = "production", **options: int) -> LifecyclePlan:
    return plan_rules(
        namespace, topics, topic(retention_ms=7 * DAY_MS), LifecycleOptions(**options), delay_ms=HOUR_MS
    )


def days_by_prefix(of: LifecyclePlan) -> dict[str, int | None]:
    return {rule.prefix: rule.expiration_days for rule in of.rules}


def test_each_topic_expires_by_its_own_retention() -> None:
    made = plan({"a": topic(retention_ms=DAY_MS), "a.b": topic(retention_ms=30 * DAY_MS)})
    # Two hours for timestamps ahead and for the broker make a day more, safety another.
    assert days_by_prefix(made) == {"production/": None, "production/a/": 3, "production/a.b/": 32}
    assert [rule.rule_id for rule in made.rules] == [
        "kafscale/production",
        "kafscale/production/a",
        "kafscale/production/a.b",
    ]


def test_without_topics_only_incomplete_uploads_go() -> None:
    [rule] = plan({}).rules
    assert (rule.expiration_days, rule.noncurrent_days, rule.abort_multipart_days) == (None, None, 7)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (topic(retention_ms=-1), "retention.ms is -1"),
        (topic(cleanup_policy="compact"), "cleanup.policy is compact"),
        (topic(retention_ms=2**63 - 1), "retention.ms is beyond what a rule can say"),
        (
            topic(message_timestamp_after_max_ms=2**63 - 1),
            "message.timestamp.after.max.ms is beyond what a rule can say",
        ),
    ],
)
def test_a_topic_kept_without_limit_has_no_rule(config: TopicConfig, reason: str) -> None:
    made = plan({"kept": config, "other": topic()})
    assert "production/kept/" not in days_by_prefix(made)
    assert days_by_prefix(made)["production/other/"] == 9
    assert [(one.days, one.reason) for one in made.topics if one.topic == "kept"] == [(None, reason)]
    # Nor may a rule for everything hit it, however many days it waits.
    with pytest.raises(
        LifecycleRefusedError, match=re.escape(f"topic 'kept' is kept without limit: {reason}")
    ):
        plan({"kept": config}, default_days=MAX_DAYS)


def test_compaction_with_deletion_expires() -> None:
    assert days_by_prefix(plan({"t": topic(cleanup_policy="compact,delete")}))["production/t/"] == 9


def test_a_timestamp_of_the_append_is_never_ahead() -> None:
    config = topic(retention_ms=DAY_MS - HOUR_MS, message_timestamp_type="LogAppendTime")
    assert expiry_of("t", config, delay_ms=HOUR_MS, safety_days=0).days == 1
    ahead = topic(retention_ms=DAY_MS - HOUR_MS, message_timestamp_after_max_ms=DAY_MS)
    assert expiry_of("t", ahead, delay_ms=HOUR_MS, safety_days=0).days == 2
    assert expiry_of("t", ahead, delay_ms=HOUR_MS + 1, safety_days=0).days == 3


@given(
    retention_ms=st.integers(0, 400 * DAY_MS),
    after_max_ms=st.integers(0, 3 * DAY_MS),
    delay_ms=st.integers(0, 2 * DAY_MS),
    append_ms=st.integers(0, 10**13),
    ahead_ms=st.integers(-(10**12), 3 * DAY_MS),
    waited_ms=st.integers(0, 30 * DAY_MS),
)
def test_the_bucket_never_comes_before_the_broker(
    retention_ms: int, after_max_ms: int, delay_ms: int, append_ms: int, ahead_ms: int, waited_ms: int
) -> None:
    config = topic(retention_ms=retention_ms, message_timestamp_after_max_ms=after_max_ms)
    days = expiry_of("t", config, delay_ms=delay_ms, safety_days=0).days
    assert days is not None
    timestamp_ms = append_ms + min(ahead_ms, after_max_ms)  # what is further ahead is refused
    created_ms = append_ms + waited_ms  # flushed, and perhaps merged, later
    bucket_ms = -(-(created_ms + days * DAY_MS) // DAY_MS) * DAY_MS
    assert bucket_ms >= timestamp_ms + retention_ms + delay_ms


def test_a_rule_for_everything_must_suit_every_topic() -> None:
    topics = {"short": topic(retention_ms=DAY_MS), "long": topic(retention_ms=20 * DAY_MS)}
    with pytest.raises(LifecycleRefusedError) as refused:
        plan(topics, default_days=21)
    assert refused.value.reasons[1:] == ("topic 'long' needs 22 days",)
    made = plan(topics, default_days=22)
    # The one that expires with everything needs no rule; the shorter of two rules wins.
    assert days_by_prefix(made) == {"production/": 22, "production/short/": 3}


def test_a_rule_for_everything_must_suit_topics_to_come() -> None:
    with pytest.raises(
        LifecycleRefusedError, match=r"a new topic that sets no retention\.ms .* needs 9 days"
    ):
        plan({"short": topic(retention_ms=DAY_MS)}, default_days=8)
    endless = replace(topic(), retention_ms=-1)
    with pytest.raises(LifecycleRefusedError, match=r"a new topic .* is kept without limit"):
        plan_rules("n", {}, endless, LifecycleOptions(default_days=9), delay_ms=0)


def test_a_refusal_names_some_and_counts_the_rest() -> None:
    topics = {f"t{number:02}": topic(retention_ms=-1) for number in range(25)}
    with pytest.raises(LifecycleRefusedError) as refused:
        plan(topics, default_days=100)
    assert len(refused.value.reasons) == 22
    assert refused.value.reasons[1].startswith("topic 't00'")
    assert refused.value.reasons[-1] == "and 5 more topics"


def test_more_rules_than_a_bucket_takes_are_refused() -> None:
    topics = {f"t{number}": topic() for number in range(MAX_RULES)}
    with pytest.raises(LifecycleRefusedError, match=r"1001 rules are more than the 1000 .*--default-days"):
        plan(topics)
    assert len(plan(topics, default_days=9).rules) == 1
    del topics["t0"]
    assert len(plan(topics).rules) == MAX_RULES
    short = {f"t{number}": topic(retention_ms=1) for number in range(MAX_RULES)}
    with pytest.raises(LifecycleRefusedError, match=r"1001 rules .* give topics the same"):
        plan(short, default_days=9)


def test_long_names_get_ids_of_their_own_that_s3_takes() -> None:
    namespace, topics = "n" * 249, ["t" * 249, "t" * 248 + "u"]
    ids = [rule_id_of(namespace, name) for name in (None, *topics)]
    assert len(set(ids)) == 3
    for rule_id, prefix in zip(ids, ("", *topics), strict=True):
        assert len(rule_id) <= MAX_ID_LENGTH
        assert is_own(namespace, rule_id, f"{namespace}/{prefix}")


def test_rules_of_other_namespaces_and_of_others_are_not_ours() -> None:
    assert is_own("a", "kafscale/a/t", "a/t/")
    assert not is_own("a", "kafscale/a.b/t", "a.b/t/")
    assert not is_own("a", "archive", "a/t/")
    assert not is_own("a", "kafscale/a", "")


def test_system_objects_are_never_matched() -> None:
    made = plan({"_kafscale": topic(), "t": topic()}, default_days=9)
    assert all(not "_kafscale/production/checkpoints/x".startswith(rule.prefix) for rule in made.rules)
