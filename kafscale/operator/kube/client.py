"""Client of the Kubernetes API: manifests go in and come out as dictionaries.

A refused call is known to have changed nothing (`KubeRefusedError`); without an answer the outcome is unknown
(`KubeUnreachableError`). Nothing is retried here: the next pass does that.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Self

import aiohttp

from kafscale.operator import api_names
from kafscale.operator.errors import KubeRefusedError, KubeUnreachableError, LeadershipLostError
from kafscale.operator.kube.access import KubeAccess
from kafscale.operator.kube.kinds import EVENT, Kind, kind_of

Manifest = dict[str, Any]

_logger = logging.getLogger(__name__)

REQUEST_SEC = 30.0
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
_JSON = "application/json"
_READS = "GET"
# The API server's message, with status 500, for an applied object whose fields have values of a wrong type.
_UNREADABLE = "failed to convert new object"


class KubeClient:
    """One identity's connections; an asynchronous context manager.

    `may_write`: asked before each write, so that an operator that lost leadership changes nothing.
    """

    def __init__(self, access: KubeAccess, *, may_write: Callable[[], bool] = lambda: True) -> None:
        self.access = access
        self._may_write = may_write
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.access.tls(), limit=16),
            timeout=aiohttp.ClientTimeout(total=REQUEST_SEC),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def guarded(self, may_write: Callable[[], bool]) -> "KubeClient":
        """The same connections with another `may_write`."""
        other = KubeClient(self.access, may_write=may_write)
        other._session = self._session
        return other

    def check_may_write(self, what: str) -> None:
        """Call it also before writes to other systems. Raises `LeadershipLostError`."""
        if not self._may_write():
            raise LeadershipLostError(f"{what} is not sent: another operator may lead by now")

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest:
        """Reads one object. Raises `KubeRefusedError` with reason NotFound if there is none."""
        return await self.request("GET", kind.path(namespace, name))

    async def find(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Reads one object; None if there is none."""
        try:
            return await self.get(kind, namespace, name)
        except KubeRefusedError as refusal:
            if refusal.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def list(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        """Objects of a namespace (None: of all) with the labels, sorted by namespace and name, each with its kind."""
        selector = ",".join(f"{name}={value}" for name, value in (labels or {}).items())
        answer = await self.request("GET", kind.path(namespace), query={"labelSelector": selector})
        found = [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in answer["items"]]
        return sorted(
            found, key=lambda each: (each["metadata"].get("namespace", ""), each["metadata"]["name"])
        )

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Creates an object. Raises `KubeRefusedError` with reason AlreadyExists if there is one."""
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        return await self.request("POST", kind.path(manifest["metadata"].get("namespace")), body=manifest)

    async def replace(self, manifest: Mapping[str, Any]) -> Manifest:
        """Replaces version `metadata.resourceVersion`; if outdated: `KubeRefusedError` with reason Conflict."""
        return await self.request("PUT", _path_of(manifest), body=manifest)

    async def apply(
        self,
        manifest: Mapping[str, Any],
        *,
        field_manager: str = api_names.FIELD_MANAGER,
        force: bool = True,
        dry_run: bool = False,
    ) -> Manifest:
        """Server-side apply: the manager owns the fields in the manifest, and releases the others that it owned.

        A manifest with only its identity releases all. `force`: takes over fields that other managers own.
        """
        query = {"fieldManager": field_manager, "force": str(force).lower()}
        if dry_run:
            query["dryRun"] = "All"
        return await self.request(
            "PATCH", _path_of(manifest), body=manifest, content_type=_APPLY, query=query
        )

    async def apply_status(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        status: Mapping[str, Any],
        *,
        field_manager: str = api_names.FIELD_MANAGER,
    ) -> Manifest:
        """Applies one part's share of a status. Each part has its own manager, and conditions merge by type."""
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace},
            "status": dict(status),
        }
        query = {"fieldManager": field_manager, "force": "true"}
        path = kind.path(namespace, name, "status")
        return await self.request("PATCH", path, body=manifest, content_type=_APPLY, query=query)

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        change: Mapping[str, Any],
        *,
        subresource: str | None = None,
    ) -> Manifest:
        """Merge patch: None removes a field, lists are replaced."""
        path = kind.path(namespace, name, subresource)
        return await self.request("PATCH", path, body=change, content_type=_MERGE)

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        propagation: str = "Background",
    ) -> bool:
        """Returns False if there was none. `propagation`: Background, Foreground, Orphan; `uid`: only this object."""
        options: Manifest = {"propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", kind.path(namespace, name), body=options)
        except KubeRefusedError as refusal:
            if refusal.status == HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    async def event(self, about: Mapping[str, Any], reason: str, message: str, *, warning: bool) -> None:
        """Records an event about the object. A repetition only increments its count.

        A refused event is logged, since a namespace that is being deleted accepts none.
        """
        metadata = about["metadata"]
        namespace = metadata.get("namespace", "default")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        content = f"{metadata.get('uid', '')}\n{reason}\n{message}"
        name = f"{metadata['name'][:200]}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        event = {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": namespace,
                "name": metadata["name"],
                "uid": metadata.get("uid", ""),
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message[:1024],
            "source": {"component": api_names.FIELD_MANAGER},
            "reportingComponent": api_names.FIELD_MANAGER,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._write_event(event)
        except KubeRefusedError as refusal:
            _logger.info("%s: %s %s: %s", metadata["name"], reason, message, refusal)

    async def _write_event(self, event: Manifest) -> None:
        namespace, name = event["metadata"]["namespace"], event["metadata"]["name"]
        try:
            await self.create(event)
        except KubeRefusedError as refusal:
            if refusal.status != HTTPStatus.CONFLICT:
                raise
            before = await self.find(EVENT, namespace, name)
            count = 1 if before is None else before.get("count", 1)
            change = {"count": count + 1, "lastTimestamp": event["lastTimestamp"]}
            await self.patch(EVENT, namespace, name, change)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
        query: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Any call by its path. Raises `KubeError`."""
        if self._session is None:
            raise RuntimeError("the client is not open")
        if method != _READS:
            self.check_may_write(f"{method} {path}")
        headers = {"content-type": content_type, "accept": _JSON}
        token = await asyncio.to_thread(self.access.bearer)
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            async with self._session.request(
                method, self.access.server + path, data=data, headers=headers, params=dict(query or {})
            ) as answer:
                return _understood(answer.status, await answer.read(), f"{method} {path}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeUnreachableError(
                f"{method} {path}: no answer of the Kubernetes API: {type(error).__name__} {error}"
            ) from error


def _path_of(manifest: Mapping[str, Any]) -> str:
    kind = kind_of(manifest["apiVersion"], manifest["kind"])
    return kind.path(manifest["metadata"].get("namespace"), manifest["metadata"]["name"])


def _understood(status: int, body: bytes, what: str) -> Manifest:
    """Parses an answer. A server error does not say what was done."""
    try:
        given: Manifest = json.loads(body)
    except ValueError:
        given = {"message": body[:200].decode(errors="replace")}
        if status < HTTPStatus.BAD_REQUEST:
            raise KubeUnreachableError(f"{what}: the answer {given['message']!r} is no JSON") from None
    if status < HTTPStatus.BAD_REQUEST:
        return given
    message = f"{what}: {given.get('message', '')}"
    if _UNREADABLE in message:
        raise KubeRefusedError(status, "Invalid", message)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise KubeUnreachableError(f"{status} {message}")
    raise KubeRefusedError(status, given.get("reason", HTTPStatus(status).phrase), message)
