"""Real etcd clusters for tests of their upkeep: filled, looked at, and started as their pods would be."""

import shutil
from collections.abc import Callable

import grpc
from aetcd import rpc

from kafscale.operator.etcd.maintenance import EtcdMaintenance, MaintenanceTimeouts
from kafscale.operator.etcd.seen import EtcdSeen, unhealthy_reason
from tests.support.etcd_server import EtcdCluster, EtcdServer
from tests.support.waiting import PATIENCE_SEC, wait_until_async

QUICK = MaintenanceTimeouts(answer_sec=2.0, defragment_sec=30.0)


def maintenance(cluster: EtcdCluster) -> EtcdMaintenance:
    return EtcdMaintenance({each.name: each.endpoint for each in cluster.members}, QUICK)


async def settled(keeper: EtcdMaintenance) -> EtcdSeen:
    """A look at which all is well."""
    return await _look_until(keeper, lambda seen: unhealthy_reason(seen) is None, "all members are well")


async def fragmented(keeper: EtcdMaintenance, cluster: EtcdCluster, *, free_bytes: int) -> EtcdSeen:
    """Fill the cluster's files with history and give it up; a look at which every member could give back so much."""
    cluster.members[0].compact(fill(cluster.members[0], "k", count=free_bytes // 250_000))

    def is_fragmented(seen: EtcdSeen) -> bool:
        fill(
            cluster.members[0], "small", count=1, size=10
        )  # what is free is counted when something is written
        return unhealthy_reason(seen) is None and all(each.free_bytes >= free_bytes for each in seen.statuses)

    return await _look_until(keeper, is_fragmented, f"every member has {free_bytes} bytes to give back")


async def _look_until(keeper: EtcdMaintenance, condition: Callable[[EtcdSeen], bool], what: str) -> EtcdSeen:
    looks: list[EtcdSeen] = []

    async def is_so() -> bool:
        looks.append(await keeper.look())
        return condition(looks[-1])

    await wait_until_async(is_so, what)
    return looks[-1]


def fill(server: EtcdServer, key: str, *, count: int, size: int = 500_000, keys: int = 1) -> int:
    """Put so many values under so many keys; the revision after that. Raises gRPC's error where there is no room."""
    with grpc.insecure_channel(server.endpoint.removeprefix("http://")) as channel:
        kv = rpc.KVStub(channel)
        revision = 0
        for number in range(count):
            name = f"{key}{number % keys}"
            put = kv.Put(rpc.PutRequest(key=name.encode(), value=bytes(size)), timeout=PATIENCE_SEC)
            revision = put.header.revision
        return revision


def lose_data(server: EtcdServer) -> None:
    """Its volume is gone."""
    shutil.rmtree(server.data_folder)
