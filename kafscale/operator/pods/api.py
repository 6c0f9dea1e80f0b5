"""Reads a few Kubernetes objects from a broker's pod, with the pod's service account and the standard library.

Not the operator's client: a broker runs without its packages, which saves 11 MB of memory.
"""

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafscale.errors import SettingError
from kafscale.operator.pods.place import Answer, Unknown

HOST = "KUBERNETES_SERVICE_HOST"
PORT = "KUBERNETES_SERVICE_PORT"
REQUEST_SEC = 5.0


class PodApi:
    """The API server as the pod's service account sees it. `folder` has the account's `token` and `ca.crt`."""

    def __init__(self, host: str, port: int, folder: Path) -> None:
        self._host = host
        self._port = port
        self._folder = folder

    async def node(self, name: str) -> Answer:
        """Reads a node."""
        return await self._get(f"node {name}", f"/api/v1/nodes/{name}")

    async def service(self, namespace: str, name: str) -> Answer:
        """Reads a service."""
        return await self._get(f"service {name}", f"/api/v1/namespaces/{namespace}/services/{name}")

    async def _get(self, what: str, path: str) -> Answer:
        return await asyncio.to_thread(self._read, what, path)

    def _read(self, what: str, path: str) -> Answer:
        try:
            # Both files change while the pod runs: tokens expire after about an hour.
            token = (self._folder / "token").read_text().strip()
            context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
            # Authorities of older clusters lack extensions that Python 3.13 requires.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=REQUEST_SEC, context=context
            )
            try:
                headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                return _answer(what, response.status, response.read())
            finally:
                connection.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            where = f"the Kubernetes API at {self._host} port {self._port}"
            return Unknown(f"{where} did not return {what}: {error or type(error).__name__}", is_answer=False)


def pod_api(environment: Mapping[str, str], folder: Path) -> PodApi:
    """Finds the API by the variables that every pod has. Raises `SettingError` if they are missing."""
    host, port = environment.get(HOST), environment.get(PORT, "443")
    if not host:
        raise SettingError(
            f"{HOST} is not set: this runs in a pod of Kubernetes; elsewhere use `kafscale serve`"
        )
    if not port.isdecimal():
        raise SettingError(f"{PORT}={port!r} is not legal: it must be a port's number")
    return PodApi(host, int(port), folder)


def _answer(what: str, status: int, body: bytes) -> Answer:
    """Raises `ValueError` if the body is not a Kubernetes object."""
    given: Any = json.loads(body)
    if not isinstance(given, dict):
        raise ValueError(f"{what} came as {type(given).__name__}")
    if status == http.HTTPStatus.OK:
        return given
    message = given.get("message") or http.HTTPStatus(status).phrase
    return Unknown(f"{what} was refused: {message}", is_answer=status < http.HTTPStatus.INTERNAL_SERVER_ERROR)
