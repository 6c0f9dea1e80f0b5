"""The stores of a cluster under test: etcd and an S3 server of this machine, with or without delay."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import BrokerError
from bench.bucket_latency import GET_LATENESS, PUT_LATENESS, LateBucket
from tests.support.etcd_install import etcd_missing
from tests.support.etcd_server import etcd_server
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import s3_server

_SEED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStores:
    """`settings` are those of a broker (environment variables); `pids` those of etcd and of the S3 server."""

    settings: Mapping[str, str]
    pids: list[int]


@contextmanager
def cluster_stores(folder: Path) -> Iterator[ClusterStores]:
    """Runs both stores in the block. Raises `BrokerError` if one of them is not installed."""
    missing = etcd_missing() or s3_server_missing()
    if missing:
        raise BrokerError(missing)
    with etcd_server(folder / "etcd") as etcd, s3_server(folder / "s3") as s3:
        settings = {**s3.settings, "KAFSCALE_ETCD_ENDPOINTS": etcd.endpoint}
        yield ClusterStores(settings=settings, pids=[etcd.pid, s3.pid])


@contextmanager
def late_bucket(stores: ClusterStores) -> Iterator[tuple[LateBucket, ClusterStores]]:
    """The same stores behind a delaying proxy, and that proxy."""
    endpoint = stores.settings["KAFSCALE_S3_ENDPOINT"]
    bucket = LateBucket(endpoint, put=PUT_LATENESS, get=GET_LATENESS, seed=_SEED)
    with bucket:
        settings = {**stores.settings, "KAFSCALE_S3_ENDPOINT": bucket.url}
        yield bucket, ClusterStores(settings=settings, pids=stores.pids)
