"""Directory buckets: listings in no order, sessions and endpoints of their own, and no key for a request."""

import pytest
from obstore.store import S3Store

from kafscale.errors import SettingError, StoreUnavailableError
from kafscale.objects.bucket import config
from kafscale.objects.bucket.config import open_bucket, open_journal_bucket, s3_config
from kafscale.objects.bucket.requests import Patience
from kafscale.objects.bucket.store import BucketStore
from kafscale.objects.request_meter import RequestMeter
from kafscale.ops.metrics import Metrics
from kafscale.ops.prices import EXPRESS_ONE_ZONE, Operation, Prices
from kafscale.settings.broker import Settings, load_settings
from tests.support.scripted_s3 import ScriptedS3, error, scripted_s3

DIRECTORY = "journals--use1-az4--x-s3"
RECORDS = {
    "KAFSCALE_S3_BUCKET": "records",
    "KAFSCALE_S3_ACCESS_KEY": "key",
    "KAFSCALE_S3_SECRET_KEY": "secret",
}
ACCEPT = {"KAFSCALE_JOURNAL_BUCKET": DIRECTORY, "KAFSCALE_JOURNAL_SINGLE_ZONE": "accept"}


def store_of(server: ScriptedS3, metrics: Metrics | None = None) -> BucketStore:
    meter = None if metrics is None else RequestMeter(metrics, Prices(), "n")
    return open_bucket(load_settings(server.settings), meter=meter)


async def test_listing_is_sorted_over_its_pages() -> None:
    async with scripted_s3(bucket=DIRECTORY) as server:
        keys = [f"n/t/{number:04d}" for number in range(2100)]
        server.objects = dict.fromkeys([*reversed(keys), "n/u/1"], b"x")
        metrics = Metrics()
        assert [info.key async for info in store_of(server, metrics).list("n/t/")] == keys
        assert metrics.requests(Operation.LIST_OBJECTS).count == len(server.requests) == 3


async def test_listing_of_a_part_of_a_name_asks_for_its_folder() -> None:
    async with scripted_s3(bucket=DIRECTORY) as server:
        server.objects = dict.fromkeys(["n/x-2", "n/x-1", "n/y-1"], b"x")
        assert [info.key async for info in store_of(server).list("n/x-")] == ["n/x-1", "n/x-2"]


async def test_listing_that_fails_begins_again() -> None:
    async with scripted_s3(bucket=DIRECTORY) as server:
        keys = [f"n/t/{number:04d}" for number in range(1500)]
        server.objects = dict.fromkeys(keys, b"x")
        server.script.append(error(503, "SlowDown"))
        assert [info.key async for info in store_of(server).list("n/t/")] == keys


def opened_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[Settings, dict[str, object]]:
    """The settings that the journal bucket is opened with, and the library's configuration."""
    seen: list[tuple[Settings, str]] = []

    def noted(settings: Settings, bucket: str) -> S3Store:
        seen.append((settings, bucket))
        return S3Store(config=s3_config(settings, bucket))

    monkeypatch.setattr(config, "_s3", noted)
    open_journal_bucket(load_settings({**RECORDS, **variables}))
    [(settings, bucket)] = seen
    return settings, dict(s3_config(settings, bucket))


def test_amazons_directory_bucket_uses_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"KAFSCALE_S3_KMS_ARN": "arn:aws:kms:key"}
    at_amazon = {"KAFSCALE_S3_ENDPOINT": "https://s3.us-east-1.amazonaws.com"}
    for more in ({}, key, at_amazon):
        _, library = opened_with(monkeypatch, **ACCEPT, **more)
        assert library["s3_express"] is True
        assert not {"endpoint", "sse_kms_key_id", "server_side_encryption"} & library.keys()


def test_endpoint_of_the_journal_bucket_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"KAFSCALE_JOURNAL_ENDPOINT": "http://127.0.0.1:9", "KAFSCALE_JOURNAL_REGION": "eu-central-1"}
    for bucket in (ACCEPT, {"KAFSCALE_JOURNAL_BUCKET": "s3://journals"}):
        _, library = opened_with(monkeypatch, **bucket, **own)
        assert library["endpoint"] == "http://127.0.0.1:9"
        assert library["region"] == "eu-central-1"
        assert "s3_express" not in library


def test_usual_journal_bucket_has_the_key_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    _, library = opened_with(
        monkeypatch, KAFSCALE_JOURNAL_BUCKET="journals", KAFSCALE_S3_KMS_ARN="arn:aws:kms:key"
    )
    assert library["sse_kms_key_id"] == "arn:aws:kms:key"
    assert library["bucket"] == "journals"


async def test_session_is_asked_for_in_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    store = open_journal_bucket(load_settings({**RECORDS, **ACCEPT, "KAFSCALE_S3_REGION": "us-east-1"}))
    monkeypatch.setattr(store._requests, "_patience", Patience(call_sec=0.1))
    with pytest.raises(
        StoreUnavailableError, match=rf"{DIRECTORY}\.s3express-use1-az4\.us-east-1\.amazonaws\.com"
    ):
        await store.put_if_absent("n/a", [b"x"])


def test_single_zone_is_refused_with_what_it_costs() -> None:
    with pytest.raises(
        SettingError, match=r"zone is lost, acknowledged records.*KAFSCALE_JOURNAL_SINGLE_ZONE=accept"
    ):
        load_settings({**RECORDS, "KAFSCALE_JOURNAL_BUCKET": f"s3://{DIRECTORY}"})
    assert load_settings({**RECORDS, **ACCEPT}).journal_bucket == DIRECTORY


def test_bucket_of_the_records_cannot_be_that_of_the_journals() -> None:
    with pytest.raises(SettingError, match="must differ from KAFSCALE_S3_BUCKET"):
        load_settings({**RECORDS, "KAFSCALE_JOURNAL_BUCKET": "s3://records"})


def test_prices_are_those_of_the_kind_of_bucket() -> None:
    usual = {**RECORDS, "KAFSCALE_PRICE_PER_1000_PUTS": "7"}
    directory = Prices.of_journals(load_settings({**usual, **ACCEPT}))
    assert directory == EXPRESS_ONE_ZONE
    other = load_settings(
        {**usual, "KAFSCALE_JOURNAL_BUCKET": "journals", "KAFSCALE_JOURNAL_PRICE_PER_GB_READ": "2"}
    )
    assert Prices.of_journals(other) == Prices(per_1000_puts=7, per_gb_read=2)
