"""This project's broker, as it is measured."""

import copy
import http.client
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.brokers import HOST, Broker
from tests.support.ports import free_port


class Kafscale(Broker):
    """This project's broker on its embedded default, with `settings` on top."""

    def __init__(
        self, work_dir: Path, settings: Mapping[str, str] | None = None, *, with_tls: bool = False
    ) -> None:
        super().__init__(work_dir, with_tls=with_tls)
        self._metrics_port = free_port()
        self._settings = dict(settings or {})

    def with_settings(self, settings: Mapping[str, str]) -> "Kafscale":
        """The same broker, on its data and ports, with these settings on top. One of the two may run at a time."""
        other = copy.copy(self)
        other._settings = {**self._settings, **settings}
        return other

    @property
    def data_folder(self) -> Path:
        """The settings of its object store and metadata."""
        return self.folder / "data"

    def command(self) -> list[str]:
        return [str(Path(sys.executable).parent / "kafscale"), "serve"]

    def environment(self) -> Mapping[str, str]:
        return {
            **self._listeners(),
            "KAFSCALE_METRICS_ADDR": f"{HOST}:{self._metrics_port}",
            "KAFSCALE_DATA_DIR": str(self.data_folder),
            **self._settings,
        }

    def _listeners(self) -> Mapping[str, str]:
        if self.tls is None:
            return {"KAFSCALE_BROKER_ADDR": self.bootstrap}
        return {
            "KAFSCALE_LISTENERS": f"PLAINTEXT://{self.bootstrap},SSL://{HOST}:{self.tls.port}",
            "KAFSCALE_SSL_CERTIFICATE_FILE": str(self.tls.certificate),
            "KAFSCALE_SSL_KEY_FILE": str(self.tls.key),
        }

    def readyz(self) -> bool:
        """True if the health endpoint says that the broker is ready."""
        try:
            return self._http_get("/readyz")[0] == http.HTTPStatus.OK
        except OSError:
            return False

    def metrics(self) -> str:
        """The broker's metrics, in Prometheus' text format."""
        return self._http_get("/metrics")[1]

    def _http_get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(HOST, self._metrics_port, timeout=2.0)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()
