"""A cluster's stores are opened with the settings that its brokers have, and with what its Secrets hold."""

import base64
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kafscale.operator.cluster_spec import Bucket, ClusterSpec, cluster_spec
from kafscale.operator.errors import SpecError
from kafscale.operator.kube.kinds import SECRET, Kind
from kafscale.operator.manifests import broker_settings
from kafscale.operator.stores.metadata_access import SecretError, open_objects, secret_reader, store_access
from kafscale.settings.broker import load_settings

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


class Kube:
    """Secrets by their names, in one namespace."""

    def __init__(self, **secrets: Mapping[str, str]) -> None:
        self.secrets = secrets

    async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (kind, namespace) == (SECRET, "ns")
        if name not in self.secrets:
            return None
        data = {key: base64.b64encode(text.encode()).decode() for key, text in self.secrets[name].items()}
        return {"data": data}


def cluster(**parts: Any) -> ClusterSpec:
    spec = {
        "brokers": {"replicas": 1},
        "s3": {"bucket": "records", "endpoint": "http://minio:9000", "namespace": "prod"},
        "etcd": {"endpoints": ["https://etcd:2379"]},
    }
    return cluster_spec("c", "ns", spec | parts)


async def test_settings_are_the_brokers(tmp_path: Path) -> None:
    spec = cluster(config={"flushIntervalMs": 250})
    found = (await store_access(spec, secret_reader(Kube()))).settings(tmp_path)
    assert found == load_settings(broker_settings.environment(spec))
    assert (found.flush_interval_ms, found.s3_namespace) == (250, "prod")
    assert os.listdir(tmp_path) == []


async def test_secrets_fill_in_what_a_pod_would_be_given(tmp_path: Path) -> None:
    spec = cluster(
        s3={"bucket": "records", "credentialsSecret": "s3"},
        etcd={
            "endpoints": ["https://etcd:2379"],
            "tlsSecret": "tls",
            "tlsClientCertificate": True,
            "credentialsSecret": "user",
        },
    )
    kube = Kube(
        s3={**KEYS, "AWS_SESSION_TOKEN": "token"},
        tls={"ca.crt": "CA", "tls.crt": "CERT", "tls.key": "KEY"},
        user={"username": "kafscale", "password": "pass"},
    )
    found = (await store_access(spec, secret_reader(kube))).settings(tmp_path)
    assert (found.s3_access_key, found.s3_secret_key, found.s3_session_token) == ("id", "secret", "token")
    assert (found.etcd_username, found.etcd_password) == ("kafscale", "pass")
    files = (found.etcd_ca, found.etcd_cert, found.etcd_key)
    assert [path.read_text() for path in files if path is not None] == ["CA", "CERT", "KEY"]


async def test_access_is_the_same_as_long_as_nothing_changes() -> None:
    spec = cluster(s3={"bucket": "records", "credentialsSecret": "s3"})
    kube = Kube(s3=KEYS)
    before = await store_access(spec, secret_reader(kube))
    assert before == await store_access(spec, secret_reader(kube))
    assert "secret" not in repr(before)
    kube.secrets["s3"] = {**KEYS, "AWS_SECRET_ACCESS_KEY": "renewed"}
    assert before != await store_access(spec, secret_reader(kube))


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        ({}, ["no Secret s3", "namespace ns"]),
        ({"s3": {"AWS_ACCESS_KEY_ID": "id"}}, ["s3", "namespace ns", "AWS_SECRET_ACCESS_KEY"]),
    ],
)
async def test_what_a_secret_lacks_is_said(secrets: dict[str, dict[str, str]], words: list[str]) -> None:
    spec = cluster(s3={"bucket": "records", "credentialsSecret": "s3"})
    with pytest.raises(SecretError) as lacks:
        await store_access(spec, secret_reader(Kube(**secrets)))
    assert all(word in str(lacks.value) for word in words)


async def test_what_is_no_base64_or_no_text_is_said() -> None:
    class Broken:
        async def find(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
            return {
                "metadata": {"name": name, "namespace": namespace},
                "data": {"AWS_ACCESS_KEY_ID": name},
            }

    for name, words in (("a", "Secret a in namespace ns"), ("/w==", "is no text")):
        spec = cluster(s3={"bucket": "records", "credentialsSecret": name})
        with pytest.raises(SecretError, match=words):
            await store_access(spec, secret_reader(Broken()))


async def test_a_bucket_is_opened_without_a_request() -> None:
    async with AsyncExitStack() as stack:
        bucket = Bucket(bucket="backups", endpoint="http://127.0.0.1:1", credentials_secret="s3")
        store = await open_objects(bucket, "ns", secret_reader(Kube(s3=KEYS)), stack)
        assert store.max_streamed_bytes > 0


async def test_a_bucket_that_cannot_be_is_said() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(SpecError, match="S3_REGION"):
            bucket = Bucket(bucket="gs://backups", region="eu-central-1")
            await open_objects(bucket, "ns", secret_reader(Kube()), stack, ["gs://backups"])


@pytest.mark.parametrize(
    ("bucket", "allowed"),
    [
        (Bucket(bucket="somebodys"), []),
        (Bucket(bucket="somebodys"), ["backups", "gs://somebodys"]),
        (Bucket(bucket="backups", endpoint="http://tenant:9000"), ["backups"]),
    ],
)
async def test_own_role_for_a_tenants_bucket_is_refused(bucket: Bucket, allowed: list[str]) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(SpecError, match="does not use its own role"):
            await open_objects(bucket, "ns", secret_reader(Kube()), stack, allowed)


@pytest.mark.parametrize("allowed", ["backups", "s3://backups", "s3://backups/"])
async def test_own_role_for_a_listed_bucket_is_used(allowed: str) -> None:
    async with AsyncExitStack() as stack:
        await open_objects(Bucket(bucket="backups"), "ns", secret_reader(Kube()), stack, [allowed])
