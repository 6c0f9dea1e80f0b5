"""S3's form of lifecycle rules, and how a bucket's change: ours as planned, those of others as they were."""

from typing import Any

from kafscale.cluster.topic_configs import effective
from kafscale.settings.broker import Settings
from kafscale.tools.lifecycle.bucket_rules import LifecycleOptions, LifecyclePlan, plan_rules
from kafscale.tools.lifecycle.rule_text import (
    changed_rules,
    dangerous_rules,
    prefix_of,
    s3_rule,
    same_rules,
)

OF_OTHERS: list[dict[str, Any]] = [
    {"ID": "logs", "Filter": {"Prefix": "logs/"}, "Status": "Enabled", "Expiration": {"Days": 3}},
    {
        "ID": "kafscale/other/t",
        "Filter": {"Prefix": "other/t/"},
        "Status": "Enabled",
        "Expiration": {"Days": 1},
    },
]


def plan(*topics: str, **options: int) -> LifecyclePlan:
    config = effective({}, Settings())
    return plan_rules("n", dict.fromkeys(topics, config), config, LifecycleOptions(**options), delay_ms=0)


def rules_of(made: LifecyclePlan) -> list[dict[str, Any]]:
    return [s3_rule(rule) for rule in made.rules]


def test_the_form_of_a_rule() -> None:
    namespace, topic, journals = rules_of(plan("t", noncurrent_days=4, abort_multipart_days=2))
    assert topic == {
        "ID": "kafscale/n/t",
        "Filter": {"Prefix": "n/t/"},
        "Status": "Enabled",
        "Expiration": {"Days": 9},
    }
    assert namespace == {
        "ID": "kafscale/n",
        "Filter": {"Prefix": "n/"},
        "Status": "Enabled",
        "Expiration": {"ExpiredObjectDeleteMarker": True},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 4},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
    }
    assert journals == {
        "ID": "kafscale/_kafscale/n",
        "Filter": {"Prefix": "_kafscale/n/"},
        "Status": "Enabled",
        "Expiration": {"ExpiredObjectDeleteMarker": True},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 4},
    }
    # With days S3 removes such markers by itself, and refuses a rule that says both.
    assert rules_of(plan(noncurrent_days=4, default_days=20))[0]["Expiration"] == {"Days": 20}


def test_a_bucket_without_rules_gets_ours() -> None:
    change = changed_rules([], plan("t"))
    assert list(change.rules) == list(change.added) == rules_of(plan("t"))


def test_what_the_bucket_has_already_is_no_change() -> None:
    change = changed_rules([*reversed(rules_of(plan("t", "u"))), *OF_OTHERS], plan("t", "u"))
    assert change.is_empty
    assert list(change.kept) == OF_OTHERS
    assert same_rules([*OF_OTHERS, *rules_of(plan("t", "u"))], change.rules)


def test_rules_come_go_and_change_beside_those_of_others() -> None:
    before = [*OF_OTHERS, *rules_of(plan("gone", "t"))]
    after = plan("new", "t", abort_multipart_days=1)
    change = changed_rules(before, after)
    assert [rule["ID"] for rule in change.added] == ["kafscale/n/new"]
    assert [rule["ID"] for rule in change.removed] == ["kafscale/n/gone"]
    assert [(old["ID"], new["ID"]) for old, new in change.replaced] == [("kafscale/n", "kafscale/n")]
    assert list(change.rules) == [*OF_OTHERS, *rules_of(after)]
    assert changed_rules(change.rules, after).is_empty


def test_a_rule_that_was_switched_off_is_switched_on_again() -> None:
    before = [rule | {"Status": "Disabled"} for rule in rules_of(plan())]
    assert len(changed_rules(before, plan()).replaced) == 1


def test_rules_in_the_older_form_are_rewritten_in_the_new_one() -> None:
    old = {"ID": "old", "Prefix": "logs/", "Status": "Enabled", "Expiration": {"Days": 3}}
    change = changed_rules([old], plan())
    assert change.kept == ({**OF_OTHERS[0], "ID": "old"},)
    assert same_rules([old, *rules_of(plan())], change.rules)


def test_a_rule_that_is_lost_or_differs_is_seen() -> None:
    wanted = changed_rules(OF_OTHERS, plan("t")).rules
    assert not same_rules(wanted[1:], wanted)
    assert not same_rules([*wanted[1:], {**wanted[0], "Expiration": {"Days": 4}}], wanted)


def test_prefixes_wherever_they_stand() -> None:
    assert prefix_of({"Prefix": "a/"}) == "a/"
    assert prefix_of({"Filter": {"And": {"Prefix": "b/", "ObjectSizeGreaterThan": 5}}}) == "b/"
    assert prefix_of({"Filter": {"Tag": {"Key": "k", "Value": "v"}}}) == ""
    assert prefix_of({"Filter": {}}) == ""


def test_rules_of_others_that_delete_our_objects_are_named() -> None:
    def rule(name: str, prefix: str, **fields: object) -> dict[str, Any]:
        fields = fields or {"Expiration": {"Days": 3}}
        return {"ID": name, "Filter": {"Prefix": prefix}, "Status": "Enabled", **fields}

    found = [
        rule("everything", ""),
        rule("one topic", "n/t/"),
        rule("system", "_kafscale/"),
        rule("by date", "n/", Expiration={"Date": "2030-01-01T00:00:00Z"}),
        rule("off", "") | {"Status": "Disabled"},
        rule("elsewhere", "nn/"),
        rule("markers", "", Expiration={"ExpiredObjectDeleteMarker": True}),
        rule("uploads", "", AbortIncompleteMultipartUpload={"DaysAfterInitiation": 1}),
    ]
    named = [one["ID"] for one in dangerous_rules(found, "n")]
    assert named == ["everything", "one topic", "system", "by date"]


def test_versions_of_journals_expire_and_no_journal_does() -> None:
    made = plan("t", noncurrent_days=4, default_days=20)
    [rule] = [rule for rule in rules_of(made) if prefix_of(rule).startswith("_kafscale/")]
    assert "Days" not in rule["Expiration"]
    change = changed_rules([*OF_OTHERS, *rules_of(made)], plan("t", default_days=20))
    assert [one["ID"] for one in change.removed] == ["kafscale/_kafscale/n"]
    assert dangerous_rules(rules_of(made)[-1:], "n") == []
