"""Lifecycle rules in the form of S3's API, and how those of a bucket change. Pure.

The form is that of `PutBucketLifecycleConfiguration` as boto3 and the AWS CLI take it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafscale.formats.object_keys import SYSTEM_FOLDER, namespace_prefix
from kafscale.tools.lifecycle.bucket_rules import LifecyclePlan, LifecycleRule, is_own

S3Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """The plan for a bucket's rules. `rules` is all that it has afterwards, those of others first."""

    rules: tuple[S3Rule, ...]
    kept: tuple[S3Rule, ...]
    added: tuple[S3Rule, ...]
    removed: tuple[S3Rule, ...]
    replaced: tuple[tuple[S3Rule, S3Rule], ...]

    @property
    def is_empty(self) -> bool:
        """True if the bucket has these rules already."""
        return not (self.added or self.removed or self.replaced)


def s3_rule(rule: LifecycleRule) -> dict[str, Any]:
    """The rule as S3's API has it."""
    fields: dict[str, Any] = {
        "ID": rule.rule_id,
        "Filter": {"Prefix": rule.prefix},
        "Status": "Enabled",
    }
    if rule.expiration_days is not None:
        fields["Expiration"] = {"Days": rule.expiration_days}
    if rule.noncurrent_days is not None:
        fields["NoncurrentVersionExpiration"] = {"NoncurrentDays": rule.noncurrent_days}
        # A deletion leaves a marker, which nothing else removes. With days, S3 removes it by itself.
        fields.setdefault("Expiration", {"ExpiredObjectDeleteMarker": True})
    if rule.abort_multipart_days is not None:
        fields["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": rule.abort_multipart_days}
    return fields


def changed_rules(found: Iterable[S3Rule], plan: LifecyclePlan) -> RuleChange:
    """The change of a bucket from the rules `found` to those of the plan; rules of others stay."""
    own: dict[str, S3Rule] = {}
    kept = []
    for rule in map(with_filter, found):
        if is_own(plan.namespace, rule.get("ID", ""), prefix_of(rule)):
            own[rule["ID"]] = rule
        else:
            kept.append(rule)
    wanted = {rule.rule_id: s3_rule(rule) for rule in plan.rules}
    return RuleChange(
        rules=(*kept, *wanted.values()),
        kept=tuple(kept),
        added=tuple(rule for name, rule in wanted.items() if name not in own),
        removed=tuple(rule for name, rule in own.items() if name not in wanted),
        replaced=tuple(
            (own[name], rule) for name, rule in wanted.items() if name in own and own[name] != rule
        ),
    )


def same_rules(found: Iterable[S3Rule], wanted: Sequence[S3Rule]) -> bool:
    """True if these are the same rules, in any order."""
    by_id = {rule.get("ID", ""): rule for rule in map(with_filter, found)}
    return by_id == {rule.get("ID", ""): rule for rule in wanted}


def with_filter(rule: S3Rule) -> S3Rule:
    """The rule in S3's newer form: a configuration cannot mix it with the older one, whose prefix is outside."""
    rest = {name: value for name, value in rule.items() if name not in ("Prefix", "Filter")}
    return {"Filter": rule.get("Filter") or {"Prefix": rule.get("Prefix", "")}, **rest}


def prefix_of(rule: S3Rule) -> str:
    """Which keys the rule is for; its other conditions are left out."""
    rule_filter = with_filter(rule)["Filter"]
    return str(rule_filter.get("Prefix", (rule_filter.get("And") or {}).get("Prefix", "")))


def dangerous_rules(kept: Iterable[S3Rule], namespace: str) -> list[S3Rule]:
    """The rules of others that delete objects of this namespace, or what the brokers keep beside them."""
    own = (namespace_prefix(namespace), f"{SYSTEM_FOLDER}/{namespace}/")
    return [rule for rule in kept if _expires_objects(rule) and any(_meet(prefix_of(rule), p) for p in own)]


def _expires_objects(rule: S3Rule) -> bool:
    expiration = rule.get("Expiration") or {}
    return rule.get("Status") == "Enabled" and ("Days" in expiration or "Date" in expiration)


def _meet(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
