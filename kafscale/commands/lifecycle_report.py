"""Lifecycle rules in words and in files: a table for people, JSON for the AWS CLI, HCL for Terraform. Pure."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafscale.tools.lifecycle.bucket_rules import LifecyclePlan, LifecycleRule, TopicExpiry
from kafscale.tools.lifecycle.rule_text import RuleChange, S3Rule, dangerous_rules, prefix_of, s3_rule

_DAY_MS: Final = 86_400_000
_UNITS: Final = ((_DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_COLUMNS: Final = ("TOPIC", "RETENTION", "SET BY", "THE BUCKET DELETES")


def as_table(plan: LifecyclePlan, bucket: str, set_on_topics: Iterable[str]) -> str:
    """The plan for people. `set_on_topics`: the topics that have a retention.ms of their own."""
    own = set(set_on_topics)
    rows = [_row(topic, "topic" if topic.topic in own else "default") for topic in plan.topics]
    namespace = plan.rules[0]
    lines = [f"Bucket {bucket}, namespace {plan.namespace!r}: {len(plan.rules)} rules.", ""]
    if rows:
        lines += _table([_COLUMNS, *rows])
    else:
        lines.append("There are no topics.")
    lines += ["", f"All of {namespace.prefix}: {'; '.join(_actions(namespace))}."]
    if namespace.expiration_days is not None:
        lines.append("What expires no sooner than that has no rule of its own.")
    lines += ["Nothing was changed. --apply sets these rules; --format json and terraform print them."]
    return "\n".join(lines)


def as_json(plan: LifecyclePlan) -> str:
    """The argument of `aws s3api put-bucket-lifecycle-configuration --lifecycle-configuration`."""
    return json.dumps({"Rules": [s3_rule(rule) for rule in plan.rules]}, indent=2)


def as_terraform(plan: LifecyclePlan, bucket: str) -> str:
    """A resource of Terraform's AWS provider (version 4 or newer)."""
    lines = [
        "# Made by `kafscale lifecycle`. Terraform replaces all lifecycle rules of the bucket by these: put rules",
        "# of your own for other prefixes into the same resource.",
        f'resource "aws_s3_bucket_lifecycle_configuration" {_quoted(_resource_name(plan.namespace))} {{',
        f"  bucket = {_quoted(bucket)}",
    ]
    for rule in plan.rules:
        lines += ["", "  rule {", *(f"    {line}".rstrip() for line in _terraform_rule(rule)), "  }"]
    return "\n".join([*lines, "}"])


def as_difference(change: RuleChange, plan: LifecyclePlan) -> str:
    """The plan's changes to the bucket, a line for each rule, and what endangers the records."""
    lines = [f"+ {_rule_text(rule)}" for rule in change.added]
    for before, after in change.replaced:
        lines += [f"- {_rule_text(before)}", f"+ {_rule_text(after)}"]
    lines += [f"- {_rule_text(rule)}" for rule in change.removed]
    if not lines:
        lines.append(f"The bucket has these {len(plan.rules)} rules already.")
    if change.kept:
        lines.append(f"{len(change.kept)} rules that are not Kafscale's stay as they are.")
    return "\n".join(lines)


def warnings(change: RuleChange, plan: LifecyclePlan) -> list[str]:
    """A line for each rule of others that deletes what brokers need."""
    return [
        f"warning: the bucket's rule {rule.get('ID', '')!r} is not Kafscale's and deletes objects under "
        f"{prefix_of(rule)!r} ({json.dumps(rule['Expiration'], default=str)}), where the brokers keep theirs"
        for rule in dangerous_rules(change.kept, plan.namespace)
    ]


def _row(topic: TopicExpiry, set_by: str) -> tuple[str, ...]:
    when = f"{topic.days} days after creation" if topic.days is not None else f"never: {topic.reason}"
    return (topic.topic, _duration(topic.retention_ms), set_by, when)


def _duration(duration_ms: int) -> str:
    if duration_ms < 0:
        return "without limit"
    for unit_ms, name in _UNITS:
        if duration_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms} {name}"
    return f"{duration_ms} ms"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _actions(rule: LifecycleRule) -> list[str]:
    actions = []
    if rule.expiration_days is not None:
        actions.append(f"deleted {rule.expiration_days} days after creation")
    if rule.noncurrent_days is not None:
        actions.append(f"older versions deleted after {rule.noncurrent_days} days")
    if rule.abort_multipart_days is not None:
        actions.append(f"incomplete uploads removed after {rule.abort_multipart_days} days")
    return actions


def _rule_text(rule: S3Rule) -> str:
    """A rule of the bucket in one line: its id, its prefix, and what it does as S3 says it."""
    does = {name: value for name, value in rule.items() if name not in ("ID", "Filter", "Status")}
    state = "" if rule.get("Status") == "Enabled" else f" ({rule.get('Status')})"
    return f"{rule.get('ID', '')}: {prefix_of(rule)}{state} {_compact(does)}"


def _compact(does: Mapping[str, Any]) -> str:
    return json.dumps(does, default=str, sort_keys=True)


def _terraform_rule(rule: LifecycleRule) -> list[str]:
    lines = [
        f"id     = {_quoted(rule.rule_id)}",
        'status = "Enabled"',
        "",
        *_block("filter", f"prefix = {_quoted(rule.prefix)}"),
    ]
    if rule.expiration_days is not None:
        lines += ["", *_block("expiration", f"days = {rule.expiration_days}")]
    elif rule.noncurrent_days is not None:
        lines += ["", *_block("expiration", "expired_object_delete_marker = true")]
    if rule.noncurrent_days is not None:
        noncurrent = f"noncurrent_days = {rule.noncurrent_days}"
        lines += ["", *_block("noncurrent_version_expiration", noncurrent)]
    if rule.abort_multipart_days is not None:
        abort = f"days_after_initiation = {rule.abort_multipart_days}"
        lines += ["", *_block("abort_incomplete_multipart_upload", abort)]
    return lines


def _block(name: str, argument: str) -> list[str]:
    return [f"{name} {{", f"  {argument}", "}"]


def _quoted(text: str) -> str:
    """A string literal of HCL, in which `${` and `%{` would begin a template."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'


def _resource_name(namespace: str) -> str:
    return "kafscale_" + re.sub(r"[^a-zA-Z0-9_-]", "_", namespace)
