"""The dashboards as files of the chart."""

import json
from collections.abc import Callable
from typing import Final

from scripts.dashboards import cluster, etcd, export, groups, operator, storage
from scripts.dashboards.model import Dashboard, to_json

FOLDER: Final = "deploy/helm/kafscale/dashboards"
DASHBOARDS: Final = (
    cluster.DASHBOARD,
    storage.DASHBOARD,
    groups.DASHBOARD,
    operator.DASHBOARD,
    etcd.DASHBOARD,
    export.DASHBOARD,
)


def dashboard_files() -> dict[str, Callable[[], str]]:
    """Each file's path in the project, and what makes its content."""
    return {f"{FOLDER}/{one.name}.json": lambda one=one: _written(one) for one in DASHBOARDS}  # type: ignore[misc]


def _written(dashboard: Dashboard) -> str:
    return json.dumps(to_json(dashboard), indent=1) + "\n"
