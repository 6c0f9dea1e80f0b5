"""The alerts as a table for their run-book."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

RULES: Final = Path(__file__).resolve().parents[1] / "deploy/helm/kafscale/files/alerts.yaml"


def alerts() -> Iterator[dict[str, Any]]:
    """Every rule of the file, in order."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def alert_rows() -> Iterator[tuple[str, ...]]:
    """A row with the name, linked to its section, the severity, and the time until it fires."""
    for rule in alerts():
        name = rule["alert"]
        yield f"[{name}](#{name.lower()})", rule["labels"]["severity"], rule.get("for", "at once")
