"""From settings to a bucket: what is asked of which server, with which headers, and which settings are refused."""

import time

import pytest

from kafscale.errors import (
    ObjectNotFoundError,
    SettingError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from kafscale.objects.bucket.config import open_backup_bucket, open_bucket, open_replica
from kafscale.objects.bucket.requests import Patience
from kafscale.objects.bucket.store import BucketStore
from kafscale.settings.broker import load_settings
from tests.support.scripted_s3 import ScriptedS3, error, scripted_s3

KEY_PAIR = {"KAFSCALE_S3_ACCESS_KEY": "key", "KAFSCALE_S3_SECRET_KEY": "secret"}


@pytest.fixture(autouse=True)
def _no_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AZURE_STORAGE_ACCOUNT_NAME",
    ):
        monkeypatch.delenv(name, raising=False)


def store_with(**variables: str) -> BucketStore:
    return open_bucket(load_settings(variables))


async def headers_of_a_put(server: ScriptedS3, *left_out: str, **more: str) -> dict[str, str]:
    """The headers of a conditional put by their names in lower case."""
    variables = {name: value for name, value in server.settings.items() if name not in left_out}
    await open_bucket(load_settings(variables | more)).put_if_absent("n/a", [b"x"])
    return server.requests[-1].headers


async def test_a_conditional_put_says_so_and_carries_a_checksum() -> None:
    async with scripted_s3() as server:
        headers = await headers_of_a_put(server)
        assert headers["if-none-match"] == "*"
        assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
        assert headers["x-amz-checksum-crc64nvme"]
        assert "Credential=key/" in headers["authorization"]
        assert "/us-east-1/s3/" in headers["authorization"]
        assert not {"x-amz-security-token", "x-amz-server-side-encryption"} & headers.keys()
        await open_bucket(load_settings(server.settings)).put("n/a", [b"y"])
        assert "if-none-match" not in server.requests[-1].headers
        assert server.requests[-1].headers["x-amz-checksum-crc64nvme"]


async def test_region_token_and_encryption_key_reach_the_store() -> None:
    arn = "arn:aws:kms:eu-central-1:111122223333:key/abc"
    async with scripted_s3() as server:
        headers = await headers_of_a_put(
            server,
            KAFSCALE_S3_REGION="eu-central-1",
            KAFSCALE_S3_SESSION_TOKEN="temporary",
            KAFSCALE_S3_KMS_ARN=arn,
        )
        assert "/eu-central-1/s3/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "temporary"
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == arn


async def test_without_a_key_the_platform_gives_credentials_and_region(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-platform")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "platform-token")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    async with scripted_s3() as server:
        headers = await headers_of_a_put(
            server, "KAFSCALE_S3_ACCESS_KEY", "KAFSCALE_S3_SECRET_KEY", "KAFSCALE_S3_REGION"
        )
        assert "Credential=from-the-platform/" in headers["authorization"]
        assert "/eu-west-3/s3/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "platform-token"


async def test_a_key_of_ours_is_not_mixed_with_a_token_of_the_platform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-other-credentials")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-the-platform")
    async with scripted_s3() as server:
        headers = await headers_of_a_put(server)
        assert "x-amz-security-token" not in headers
        assert "Credential=key/" in headers["authorization"]


async def test_the_bucket_may_stand_in_the_host_name() -> None:
    variables = KEY_PAIR | {
        "KAFSCALE_S3_BUCKET": "records",
        "KAFSCALE_S3_ENDPOINT": "http://store.invalid:9000",
        "KAFSCALE_S3_PATH_STYLE": "false",
    }
    with pytest.raises(StoreError, match=r"PUT http://records\.store\.invalid:9000/n/a "):
        await open_bucket(load_settings(variables), Patience(call_sec=0.1)).put_if_absent("n/a", [b"x"])


@pytest.mark.parametrize("name", ["records", "s3://records", "s3://records/", "gs://records"])
def test_a_bucket_may_be_named_in_these_ways(name: str) -> None:
    assert isinstance(store_with(KAFSCALE_S3_BUCKET=name), BucketStore)


def test_an_azure_container_needs_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"az://records.*[Aa]ccount"):
        store_with(KAFSCALE_S3_BUCKET="az://records")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "ours")
    assert isinstance(store_with(KAFSCALE_S3_BUCKET="az://records"), BucketStore)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "KAFSCALE_S3_BUCKET is not set"),
        ({"KAFSCALE_S3_BUCKET": "b-1", "KAFSCALE_S3_REGION": "zürich"}, "KAFSCALE_S3_REGION.*not ASCII"),
        (
            {"KAFSCALE_S3_BUCKET": "gs://b-1", "KAFSCALE_S3_KMS_ARN": "arn"},
            "KAFSCALE_S3_KMS_ARN is for S3 only",
        ),
        ({"KAFSCALE_S3_BUCKET": "gs://b-1", **KEY_PAIR}, "KAFSCALE_S3_ACCESS_KEY is for S3 only"),
        (
            {
                "KAFSCALE_S3_BUCKET": "b-1",
                "KAFSCALE_S3_ENDPOINT": "http://10.0.0.1:9000",
                "KAFSCALE_S3_PATH_STYLE": "false",
            },
            "is an IP address: set it to true",
        ),
        (
            {
                "KAFSCALE_S3_BUCKET": "b-1",
                "KAFSCALE_S3_ENDPOINT": "https://[::1]:9000",
                "KAFSCALE_S3_PATH_STYLE": "false",
            },
            "is an IP address: set it to true",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_with_advice(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        store_with(**variables)


async def request_of_the_replica(server: ScriptedS3, **variables: str) -> tuple[str, dict[str, str]]:
    """The path of a read, and its headers."""
    settings = load_settings({"KAFSCALE_S3_READ_BUCKET": "nearer", **KEY_PAIR, **variables})
    with pytest.raises(StoreError):
        await open_replica(settings).get("n/a")
    return server.requests[-1].key, server.requests[-1].headers


async def test_the_replica_has_its_own_place_and_the_same_credentials() -> None:
    async with scripted_s3() as server:
        path, headers = await request_of_the_replica(
            server,
            KAFSCALE_S3_BUCKET="records",
            KAFSCALE_S3_ENDPOINT="http://primary.invalid:9000",
            KAFSCALE_S3_REGION="us-east-1",
            KAFSCALE_S3_SESSION_TOKEN="temporary",
            KAFSCALE_S3_READ_ENDPOINT=f"http://127.0.0.1:{server.port}",
            KAFSCALE_S3_READ_REGION="eu-central-1",
        )
        assert path == "nearer/n/a"
        assert "Credential=key/" in headers["authorization"]
        assert "/eu-central-1/s3/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "temporary"


async def test_replica_is_beside_the_bucket_by_default() -> None:
    async with scripted_s3() as server:
        path, headers = await request_of_the_replica(
            server,
            KAFSCALE_S3_BUCKET="records",
            KAFSCALE_S3_ENDPOINT=f"http://127.0.0.1:{server.port}",
            KAFSCALE_S3_REGION="ap-south-1",
        )
        assert path == "nearer/n/a"
        assert "/ap-south-1/s3/" in headers["authorization"]


async def test_nothing_is_tried_again_at_the_replica() -> None:
    async with scripted_s3() as server:
        server.script.extend([error(503, "SlowDown"), error(500, "InternalError")])
        settings = load_settings(server.settings | {"KAFSCALE_S3_READ_BUCKET": "records"})
        server.objects["n/a"] = b"body"
        replica = open_replica(settings)
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                await replica.get("n/a")
        assert await replica.get("n/a") == b"body"
        with pytest.raises(ObjectNotFoundError):
            await replica.get("n/b")
        assert server.methods() == ["GET"] * 4
        started = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        await replica.get_range("n/a", 0, 100)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"KAFSCALE_S3_BUCKET": "records"}, "KAFSCALE_S3_READ_BUCKET is not set"),
        (
            {"KAFSCALE_S3_BUCKET": "records", "KAFSCALE_S3_READ_BUCKET": "gs://nearer", **KEY_PAIR},
            "KAFSCALE_S3_READ_BUCKET=gs://nearer cannot be used: .*S3 only",
        ),
        (
            {
                "KAFSCALE_S3_BUCKET": "records",
                "KAFSCALE_S3_PATH_STYLE": "false",
                "KAFSCALE_S3_READ_BUCKET": "nearer",
                "KAFSCALE_S3_READ_ENDPOINT": "http://10.0.0.1:9000",
            },
            "KAFSCALE_S3_READ_BUCKET=nearer cannot be used: .*IP address",
        ),
    ],
)
def test_unusable_replica_is_refused_by_its_own_name(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        open_replica(load_settings(variables))


async def request_for_a_backup(server: ScriptedS3, **variables: str) -> tuple[str, dict[str, str]]:
    """The path of a write, and its headers."""
    settings = load_settings({"KAFSCALE_S3_BUCKET": "records", **KEY_PAIR, **variables})
    await open_backup_bucket(settings).put("p/n/a", [b"body"])
    return server.requests[-1].key, server.requests[-1].headers


async def test_backup_bucket_is_beside_the_records_by_default() -> None:
    async with scripted_s3() as server:
        path, headers = await request_for_a_backup(
            server,
            KAFSCALE_BACKUP_BUCKET="safe",
            KAFSCALE_S3_ENDPOINT=f"http://127.0.0.1:{server.port}",
            KAFSCALE_S3_REGION="ap-south-1",
            KAFSCALE_S3_SESSION_TOKEN="temporary",
            KAFSCALE_S3_KMS_ARN="arn:aws:kms:of-the-records",
        )
        assert path == "safe/p/n/a"
        assert "Credential=key/" in headers["authorization"]
        assert "/ap-south-1/s3/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "temporary"
        assert "x-amz-server-side-encryption" not in headers


async def test_backup_bucket_elsewhere_has_its_own_credentials() -> None:
    async with scripted_s3() as server:
        path, headers = await request_for_a_backup(
            server,
            KAFSCALE_S3_ENDPOINT="http://primary.invalid:9000",
            KAFSCALE_S3_REGION="us-east-1",
            KAFSCALE_S3_SESSION_TOKEN="temporary",
            KAFSCALE_BACKUP_BUCKET="safe",
            KAFSCALE_BACKUP_ENDPOINT=f"http://127.0.0.1:{server.port}",
            KAFSCALE_BACKUP_REGION="eu-central-1",
            KAFSCALE_BACKUP_ACCESS_KEY="other",
            KAFSCALE_BACKUP_SECRET_KEY="other-secret",
            KAFSCALE_BACKUP_KMS_ARN="arn:aws:kms:of-the-backups",
        )
        assert path == "safe/p/n/a"
        assert "Credential=other/" in headers["authorization"]
        assert "/eu-central-1/s3/" in headers["authorization"]
        assert "x-amz-security-token" not in headers
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "arn:aws:kms:of-the-backups"


async def test_a_refusal_of_the_backup_bucket_names_its_own_settings() -> None:
    """The advice is that for the records' bucket, whose settings a reader would else change in vain."""
    async with scripted_s3() as server:
        server.script.append(error(404, "NoSuchBucket"))
        endpoint = f"http://127.0.0.1:{server.port}"
        with pytest.raises(StoreRefusedError, match=r"create the bucket.*KAFSCALE_BACKUP_BUCKET"):
            await request_for_a_backup(server, KAFSCALE_BACKUP_BUCKET="safe", KAFSCALE_S3_ENDPOINT=endpoint)


def test_backups_of_records_in_s3_may_be_in_another_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    variables = {"KAFSCALE_S3_BUCKET": "records", "KAFSCALE_S3_REGION": "eu-central-1", **KEY_PAIR}
    open_backup_bucket(load_settings({**variables, "KAFSCALE_BACKUP_BUCKET": "gs://safe"}))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "KAFSCALE_BACKUP_BUCKET is not set"),
        (
            {"KAFSCALE_BACKUP_BUCKET": "gs://safe", "KAFSCALE_BACKUP_REGION": "eu-central-1"},
            "KAFSCALE_BACKUP_BUCKET=gs://safe cannot be used: .*S3 only",
        ),
    ],
)
def test_unusable_backup_bucket_is_refused_by_its_own_name(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        open_backup_bucket(load_settings({"KAFSCALE_S3_BUCKET": "records", **variables}))
