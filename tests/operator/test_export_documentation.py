"""docs/kubernetes-exports.md tells of every reason and metric of an export, and of no other reason."""

import re
from pathlib import Path

from kafscale.operator.exports.metrics import FAMILIES
from kafscale.operator.exports.status import Reason
from kafscale.operator.resource_metrics import EXPORT_RESOURCES
from kafscale.operator.schema.export_status import properties
from kafscale.operator.stores.cluster_connection import REASONS

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes-exports.md"


def test_each_reason_has_its_row() -> None:
    rows = re.findall(
        r"^\| `([A-Z]\w+)` \| (?:Ready|Failed|Pending)", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(rows) == sorted([*Reason, *REASONS])


def test_metrics_and_fields_of_the_status_are_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [*(family.name for family in (EXPORT_RESOURCES, *FAMILIES)), *properties()]
    assert [name for name in names if f"`{name}`" not in text] == ["workload"]
