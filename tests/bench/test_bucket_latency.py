"""A late bucket is as late as it says, and its requests are billed as a bucket's owner pays for them."""

import random
from collections import Counter
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from bench.bucket_latency import GET_LATENESS, PUT_LATENESS, Bill, LateBucket, Lateness, bill
from tests.support.object_store_proxy import RequestKind
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, s3_server


@pytest.mark.parametrize("lateness", [PUT_LATENESS, GET_LATENESS])
def test_median_and_p99_latency_are_as_configured(lateness: Lateness) -> None:
    generator = random.Random(5)
    drawn = sorted(lateness.draw_sec(generator) * 1000 for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(lateness.p50_ms, rel=0.03)
    assert drawn[19_800] == pytest.approx(lateness.p99_ms, rel=0.1)


def test_lists_cost_what_puts_do_and_deletions_nothing() -> None:
    counts = Counter(
        {
            RequestKind(method="PUT", suffix=".kfs", outcome="200"): 5,
            RequestKind(method="PUT", suffix=".index", outcome="412"): 2,
            RequestKind(method="POST", suffix=".kfs", outcome="200"): 1,
            RequestKind(method="GET", suffix="bucket", outcome="200"): 3,
            RequestKind(method="GET", suffix=".kfs", outcome="206"): 7,
            RequestKind(method="HEAD", suffix=".kfs", outcome="200"): 1,
            RequestKind(method="DELETE", suffix=".kfs", outcome="204"): 9,
        }
    )
    assert bill(counts) == Bill(puts=11, gets=8)
    assert bill(counts) - Bill(puts=1, gets=8) == Bill(puts=10, gets=0)


async def test_proxied_requests_are_delayed_and_counted(tmp_path: Path) -> None:
    missing = s3_server_missing()
    if missing:
        pytest.skip(missing)
    fixed = Lateness(p50_ms=40.0, p99_ms=40.0)
    with s3_server(tmp_path) as server, LateBucket(server.endpoint, put=fixed, get=fixed, seed=1) as proxy:
        assert isinstance(proxy, LateBucket)
        store = S3Store(
            server.bucket,
            endpoint=proxy.url,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region=REGION,
            client_options={"allow_http": True},
        )
        for number in range(3):
            await obstore.put_async(store, f"a/{number}.kfs", b"content", mode="create")
        assert bytes(await (await obstore.get_async(store, "a/1.kfs")).bytes_async()) == b"content"
        assert proxy.bill() == Bill(puts=3, gets=1)
        assert proxy.puts_done == 3
        assert len(proxy.put_milliseconds(since=1)) == 2
        assert all(taken >= 40 for taken in proxy.put_milliseconds(since=0))
