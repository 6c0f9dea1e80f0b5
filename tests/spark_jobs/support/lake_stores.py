"""The stores of a cluster for tests with Spark: etcd and a bucket, which clients reach through a proxy."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kafscale.settings.broker import Settings
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.object_store_proxy import ObjectStoreProxy
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server, s3_server


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeStores:
    """Both stores. `proxied`: the settings of those who may be held up in flight; `direct`: of others."""

    etcd: EtcdServer
    s3: S3Server
    proxy: ObjectStoreProxy
    direct: Settings

    @property
    def proxied(self) -> Settings:
        return replace(self.direct, s3_endpoint=self.proxy.url)


@contextmanager
def lake_stores(folder: Path) -> Iterator[LakeStores]:
    """An etcd and an S3 server of their own, for the time of the block."""
    with (
        etcd_server(folder / "etcd") as etcd,
        s3_server(folder / "s3") as server,
        ObjectStoreProxy(server.endpoint) as proxy,
    ):
        direct = Settings(
            etcd_endpoints=(etcd.endpoint,),
            s3_bucket=server.bucket,
            s3_endpoint=server.endpoint,
            s3_region=REGION,
            s3_path_style=True,
            s3_access_key=ACCESS_KEY,
            s3_secret_key=SECRET_KEY,
            data_dir=folder / "unused",
        )
        yield LakeStores(etcd=etcd, s3=server, proxy=proxy, direct=direct)
