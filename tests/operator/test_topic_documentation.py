"""docs/kubernetes-topics.md tells of every reason that a status may have, and of no other."""

import re
from pathlib import Path

from kafscale.operator.resource_metrics import TOPIC_RESOURCES
from kafscale.operator.stores.cluster_connection import REASONS
from kafscale.operator.topics.status import Reason

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes-topics.md"


def test_each_reason_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [A-Z]", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted([*Reason, *REASONS])


def test_the_metric_is_named() -> None:
    assert TOPIC_RESOURCES.name in PAGE.read_text(encoding="utf-8")
