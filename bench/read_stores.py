"""The object stores of the read benchmark: a folder with slow GETs, or an S3 server behind a slow proxy."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from bench.brokers import ROOT
from bench.kafscale_broker import Kafscale
from bench.slow_broker import slow_store
from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.object_store import ObjectStore
from kafscale.settings.broker import Settings, load_settings
from tests.support.object_store_proxy import Fault, FaultKind, ObjectStoreProxy
from tests.support.s3_server import s3_server

FOLDER, S3 = "folder", "s3"
STORES = (FOLDER, S3)


class SlowBroker(Kafscale):
    """Kafscale over a folder whose GETs take `get_ms` longer."""

    def __init__(self, work_dir: Path, settings: Mapping[str, str], get_ms: float) -> None:
        super().__init__(work_dir, {"PYTHONPATH": str(ROOT), **settings})
        self._get_ms = get_ms

    def command(self) -> list[str]:
        return [sys.executable, "-m", "bench.slow_broker", str(self._get_ms)]


class ReadStore:
    """A broker that is not started yet, and its object store for a client with the same delay."""

    def __init__(self, broker: Kafscale, kind: str, get_ms: float) -> None:
        self.broker = broker
        self._kind = kind
        self._get_ms = get_ms

    def open(self) -> ObjectStore:
        """The store; to be closed."""
        settings = self._settings()
        if self._kind == S3:
            return open_bucket(settings)
        slow = slow_store(self._get_ms / 1000, settings.s3_concurrency)
        return slow(settings.data_dir / "objects")

    def _settings(self) -> Settings:
        with patch.dict(os.environ, self.broker.environment()):
            return load_settings(os.environ)


@contextmanager
def read_store(kind: str, work_dir: Path, settings: Mapping[str, str], get_ms: float) -> Iterator[ReadStore]:
    """A broker, not started yet, over such a store; both are removed in the end."""
    with contextlib.ExitStack() as stack:
        if kind == FOLDER:
            broker: Kafscale = SlowBroker(work_dir, settings, get_ms)
        else:
            broker = Kafscale(work_dir, {**settings, **stack.enter_context(_late_s3(work_dir, get_ms))})
        stack.callback(broker.remove)
        yield ReadStore(broker, kind, get_ms)


@contextmanager
def _late_s3(work_dir: Path, get_ms: float) -> Iterator[Mapping[str, str]]:
    """The settings for an S3 server on which a GET takes `get_ms` longer."""
    seconds = (get_ms / 1000, get_ms / 1000)
    with (
        s3_server(work_dir / "s3") as server,
        ObjectStoreProxy(server.endpoint) as proxy,
        proxy.fault(Fault(kind=FaultKind.DELAY, methods=frozenset({"GET"}), seconds=seconds)),
    ):
        yield {**server.settings, "KAFSCALE_S3_ENDPOINT": proxy.url}
