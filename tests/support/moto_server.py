"""moto's S3 in a process: it accepts lifecycle rules, which the S3 server of the other tests does not."""

import http.client
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

HOST = "127.0.0.1"
BUCKET = "records"


class MotoServer(ServerProcess):
    """One server; its objects are in its memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__("moto", folder)
        self.port = free_port()

    @property
    def settings(self) -> dict[str, str]:
        """A broker's settings for it, as environment variables."""
        return {
            "KAFSCALE_S3_BUCKET": BUCKET,
            "KAFSCALE_S3_ENDPOINT": f"http://{HOST}:{self.port}",
            "KAFSCALE_S3_REGION": "us-east-1",
            "KAFSCALE_S3_ACCESS_KEY": "key",
            "KAFSCALE_S3_SECRET_KEY": "secret",
        }

    def start(self, timeout_s: float = PATIENCE_SEC) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-c", "from moto.server import main; main()"]
        self.launch([*command, "--host", HOST, "--port", str(self.port)], clean_environment())
        wait_until(self._answers, "moto answers", timeout_s)

    def make_bucket(self) -> None:
        """A new, empty bucket without rules in place of the previous one."""
        assert self._status("POST", "/moto-api/reset") == 200
        assert self._status("PUT", f"/{BUCKET}") == 200

    def _answers(self) -> bool:
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        try:
            return self._status("GET", "/moto-api/data.json") == 200
        except OSError:
            return False

    def _status(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()


@contextmanager
def moto_server(folder: Path) -> Iterator[MotoServer]:
    """A server that runs in the block."""
    server = MotoServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
