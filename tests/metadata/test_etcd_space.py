"""etcd with its quota used up, and the store's answers then."""

import asyncio
from pathlib import Path

import grpc
import pytest
from aetcd import rpc

from kafscale.errors import StoreIndeterminateError
from kafscale.metadata.store import Put
from tests.metadata.etcd_stores import QUICK, etcd_store, put, until_answered
from tests.support.etcd_server import EtcdServer, etcd_server
from tests.support.waiting import PATIENCE_SEC

VALUE = bytes(500_000)


def make_room(server: EtcdServer, revision: int) -> None:
    """Does as docs/operations.md says."""
    with grpc.insecure_channel(server.endpoint.removeprefix("http://")) as channel:
        maintenance = rpc.MaintenanceStub(channel)
        server.compact(revision)
        maintenance.Defragment(rpc.DefragmentRequest(), timeout=PATIENCE_SEC)
        alarms = maintenance.Alarm(rpc.AlarmRequest(action=rpc.AlarmRequest.GET), timeout=PATIENCE_SEC).alarms
        for alarm in alarms:
            disarm = rpc.AlarmRequest(
                action=rpc.AlarmRequest.DEACTIVATE, memberID=alarm.memberID, alarm=alarm.alarm
            )
            maintenance.Alarm(disarm, timeout=PATIENCE_SEC)


async def test_a_full_etcd_leaves_writes_in_doubt_and_reads_alone(tmp_path: Path) -> None:
    with etcd_server(tmp_path, flags=["--quota-backend-bytes", str(8 * 1024 * 1024)]) as server:
        async with etcd_store(server.endpoint, timeouts=QUICK) as store:
            first = await put(store, "small", b"value")
            with pytest.raises(
                StoreIndeterminateError, match=r"database space exceeded .*docs/operations\.md"
            ):
                # By time, not by count: etcd learns its size every 100 ms only, and a fast one
                # takes any number of puts until then.
                async with asyncio.timeout(PATIENCE_SEC):
                    while True:
                        await store.transact([], [Put("k", VALUE)])
            found = await until_answered(lambda: store.get("small"))
            assert found is not None
            assert found.mod_revision == first
            newest = (await until_answered(lambda: store.range(""))).revision
            make_room(server, newest)
            await until_answered(lambda: put(store, "small", b"again"))
