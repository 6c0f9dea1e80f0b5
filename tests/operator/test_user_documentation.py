"""docs/kubernetes-users.md tells of every reason that a status may have, and of no other."""

import re
from pathlib import Path

from kafscale.operator import api_names
from kafscale.operator.resource_metrics import USER_RESOURCES
from kafscale.operator.stores.cluster_connection import REASONS
from kafscale.operator.users.status import Reason

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes-users.md"


def test_each_reason_has_its_row() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \| [A-Z]", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted([*Reason, *REASONS])


def test_metric_and_annotation_are_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert USER_RESOURCES.name in text
    assert api_names.ROTATE in text
