"""Opens a cluster's stores from its specification and Secrets, with its brokers' settings."""

import base64
import binascii
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kafscale.errors import KafscaleError, SettingError
from kafscale.metadata.etcd.config import EtcdConfig
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.bucket.store import BucketStore
from kafscale.operator.cluster_spec import Bucket, ClusterSpec
from kafscale.operator.errors import SpecError
from kafscale.operator.kube.kinds import SECRET
from kafscale.operator.kube.roles import Finds
from kafscale.operator.manifests import broker_settings
from kafscale.settings.broker import Settings, load_settings

SecretReader = Callable[[str, str], Awaitable[Mapping[str, bytes]]]
"""Given namespace and name, returns a Secret's data. Raises `SecretError`, `KubeError`."""

# The variables that name files in a broker's pod, and the key of each in the Secret.
_FILES: Final = {
    "KAFSCALE_ETCD_CA": "ca.crt",
    "KAFSCALE_ETCD_CERT": "tls.crt",
    "KAFSCALE_ETCD_KEY": "tls.key",
}


class SecretError(KafscaleError):
    """A Secret that a cluster names is missing or incomplete; the message names it."""


def secret_reader(kube: Finds) -> SecretReader:
    """A reader of Secrets from the Kubernetes API."""

    async def read(namespace: str, name: str) -> Mapping[str, bytes]:
        found = await kube.find(SECRET, namespace, name)
        if found is None:
            raise SecretError(f"there is no Secret {name} in namespace {namespace}")
        return secret_data(found)

    return read


def secret_data(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """Decodes a Secret's data. Raises `SecretError`."""
    try:
        return {key: base64.b64decode(text) for key, text in (secret.get("data") or {}).items()}
    except binascii.Error as problem:
        metadata = secret.get("metadata", {})
        where = f"{metadata.get('name')} in namespace {metadata.get('namespace')}"
        raise SecretError(f"the Secret {where}: {problem}") from problem


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAccess:
    """Everything needed to open a cluster's stores; equal while the same connections can be used.

    `environment`: the brokers' variables, with those from Secrets. `files`: content of the files that some of them
    name, by variable.
    """

    environment: Mapping[str, str] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)

    def settings(self, folder: Path) -> Settings:
        """Loads the settings; writes the files to `folder`, which must be private. Raises `SpecError`."""
        environment = dict(self.environment)
        for variable, content in self.files.items():
            path = folder / _FILES[variable]
            path.touch(mode=0o600)
            path.write_bytes(content)
            environment[variable] = str(path)
        return _settings(environment)


async def store_access(cluster: ClusterSpec, secrets: SecretReader) -> StoreAccess:
    """Reads a specification's Secrets. Raises `SecretError`, `KubeError`."""
    environment = broker_settings.environment(cluster)
    environment |= await _bucket_credentials("KAFSCALE_S3", cluster.objects, cluster.namespace, secrets)
    files: dict[str, bytes] = {}
    if cluster.etcd.credentials_secret is not None:
        secret = _Secret(cluster.namespace, cluster.etcd.credentials_secret, secrets)
        environment["KAFSCALE_ETCD_USERNAME"] = await secret.text("username")
        environment["KAFSCALE_ETCD_PASSWORD"] = await secret.text("password")
    if cluster.etcd.tls_secret is not None:
        secret = _Secret(cluster.namespace, cluster.etcd.tls_secret, secrets)
        files = {name: await secret.bytes(key) for name, key in _FILES.items() if name in environment}
    return StoreAccess(environment=environment, files=files)


async def open_store(access: StoreAccess, stack: contextlib.AsyncExitStack) -> tuple[EtcdStore, Settings]:
    """Opens the metadata store, which need not answer yet; `stack` closes it. Returns it with the settings.

    Raises `SpecError`, and `StartupError` when etcd refuses certificate, user or prefix.
    """
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kafscale-tls-"))
    settings = access.settings(Path(folder))
    store = await EtcdStore.open(EtcdConfig.from_settings(settings))
    stack.push_async_callback(store.close)
    return store, settings


async def open_metadata(
    cluster: ClusterSpec, secrets: SecretReader, stack: contextlib.AsyncExitStack
) -> EtcdStore:
    """Opens a separate connection to a cluster's metadata store; `stack` closes it.

    Raises as `store_access` and `open_store` do. For frequent use take `ClusterConnections`.
    """
    store, _ = await open_store(await store_access(cluster, secrets), stack)
    return store


async def open_objects(
    bucket: Bucket,
    namespace: str,
    secrets: SecretReader,
    stack: contextlib.AsyncExitStack,
    own_role_buckets: Collection[str] = (),
) -> BucketStore:
    """Opens a bucket of a specification, such as `objects` or the backups'; `stack` closes it.

    `namespace`: the cluster's, where the Secret with the credentials is. `own_role_buckets`: those that the
    operator may open with its own role if no Secret is named; otherwise everyone who may create a cluster could have
    the operator read and write whatever its role allows. Makes no request to the bucket.
    Raises `SpecError`, `SecretError`, `KubeError`.
    """
    if bucket.credentials_secret is None:
        _check_own_role(bucket, own_role_buckets)
    environment = broker_settings.bucket_environment("KAFSCALE_S3", bucket)
    environment |= await _bucket_credentials("KAFSCALE_S3", bucket, namespace, secrets)
    try:
        objects = open_bucket(_settings(environment))
    except SettingError as problem:
        raise SpecError(str(problem)) from problem
    stack.push_async_callback(objects.close)
    return objects


def _check_own_role(bucket: Bucket, own_role_buckets: Collection[str]) -> None:
    allowed = {_full_name(name) for name in own_role_buckets}
    # At an endpoint of the tenant's choice the role's session token would be the tenant's, too.
    if bucket.endpoint is None and _full_name(bucket.bucket) in allowed:
        return
    raise SpecError(
        f"bucket {bucket.bucket} has no credentialsSecret, and the operator does not use its own role for it: name a "
        "Secret, or have the operator's administrator list it in operator.ownRoleBuckets (without an endpoint)"
    )


def _full_name(bucket: str) -> str:
    """With its scheme; default: S3's."""
    return bucket.rstrip("/") if "://" in bucket else f"s3://{bucket.rstrip('/')}"


def _settings(environment: Mapping[str, str]) -> Settings:
    try:
        return load_settings(environment)
    except SettingError as problem:
        raise SpecError(str(problem)) from problem


async def _bucket_credentials(
    prefix: str, bucket: Bucket, namespace: str, secrets: SecretReader
) -> dict[str, str]:
    """Empty without a Secret: the operator's own role is used."""
    if bucket.credentials_secret is None:
        return {}
    secret = _Secret(namespace, bucket.credentials_secret, secrets)
    found = {
        f"{prefix}_ACCESS_KEY": await secret.text("AWS_ACCESS_KEY_ID"),
        f"{prefix}_SECRET_KEY": await secret.text("AWS_SECRET_ACCESS_KEY"),
    }
    token = await secret.find("AWS_SESSION_TOKEN")
    if token is not None:
        found[f"{prefix}_SESSION_TOKEN"] = token.decode(errors="replace")
    return found


class _Secret:
    """One Secret, read once."""

    def __init__(self, namespace: str, name: str, secrets: SecretReader) -> None:
        self._namespace = namespace
        self._name = name
        self._secrets = secrets
        self._data: Mapping[str, bytes] | None = None

    async def find(self, key: str) -> bytes | None:
        if self._data is None:
            self._data = await self._secrets(self._namespace, self._name)
        return self._data.get(key)

    async def bytes(self, key: str) -> bytes:
        found = await self.find(key)
        if found is None:
            raise SecretError(f"the Secret {self._name} in namespace {self._namespace} has no {key}")
        return found

    async def text(self, key: str) -> str:
        found = await self.bytes(key)
        try:
            return found.decode()
        except UnicodeDecodeError as problem:
            raise SecretError(
                f"{key} of the Secret {self._name} in namespace {self._namespace} is no text"
            ) from problem
