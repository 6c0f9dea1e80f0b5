"""Where exporters keep their holds, as settings: one line a backend that the contract of exports runs against."""

import uuid
from collections.abc import Callable
from pathlib import Path

from kafscale.settings.broker import Settings, load_settings
from tests.support.etcd_server import SHARED


def embedded(folder: Path) -> Settings:
    """A data folder in which nothing is."""
    return load_settings({"KAFSCALE_DATA_DIR": str(folder / "data"), "KAFSCALE_LOCAL_FSYNC": "false"})


def etcd(_: Path) -> Settings:
    """A prefix of a real etcd under which nothing is."""
    environment = {
        "KAFSCALE_ETCD_ENDPOINTS": SHARED.endpoint(),
        "KAFSCALE_ETCD_PREFIX": f"/contract/{uuid.uuid4().hex}",
        # Never asked: exporters keep nothing there.
        "KAFSCALE_S3_BUCKET": "unused",
    }
    return load_settings(environment)


EXPORT_BACKENDS: dict[str, Callable[[Path], Settings]] = {"embedded": embedded, "etcd": etcd}
