"""A real S3 server in a process: versitygw over a folder, with one bucket."""

import http.client
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.s3_install import VERSITYGW, s3_server_missing
from tests.support.waiting import PATIENCE_SEC, wait_until

HOST = "127.0.0.1"
ACCESS_KEY = "kafscale-tests"
SECRET_KEY = "kafscale-tests-secret"
REGION = "us-east-1"
BUCKET = "records"

_HEALTH = "/healthy"
_numbers = itertools.count(1)


class S3Server(ServerProcess):
    """One server; its folder and its port stay over a restart."""

    def __init__(self, folder: Path, bucket: str = BUCKET) -> None:
        super().__init__(f"versitygw-{next(_numbers)}", folder)
        missing = s3_server_missing()
        assert missing is None, missing
        self.bucket = bucket
        self.port = free_port()
        self._root = folder / "buckets"

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """A broker's settings for it, as environment variables."""
        return {
            "KAFSCALE_S3_BUCKET": self.bucket,
            "KAFSCALE_S3_ENDPOINT": self.endpoint,
            "KAFSCALE_S3_REGION": REGION,
            "KAFSCALE_S3_PATH_STYLE": "true",
            "KAFSCALE_S3_ACCESS_KEY": ACCESS_KEY,
            "KAFSCALE_S3_SECRET_KEY": SECRET_KEY,
        }

    def start(self, timeout_s: float = PATIENCE_SEC) -> None:
        """Start it and wait until it answers."""
        self.bucket_folder.mkdir(parents=True, exist_ok=True)  # a folder of the root is a bucket
        command = [
            str(VERSITYGW), "--quiet", "--region", REGION, "--health", _HEALTH,
            "--port", f"{HOST}:{self.port}", "posix", str(self._root),
        ]  # fmt: skip
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        self.launch(command, clean_environment() | keys)
        wait_until(self._answers, f"{self.name} answers", timeout_s)

    @property
    def bucket_folder(self) -> Path:
        """The folder of the bucket's objects as files, each under its key."""
        return self._root / self.bucket

    def stored_files(self) -> list[str]:
        """The keys of the bucket's objects, from the folder."""
        root = self.bucket_folder
        return sorted(
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root)
            for name in names
        )

    def _answers(self) -> bool:
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        connection = http.client.HTTPConnection(HOST, self.port, timeout=1)
        try:
            connection.request("GET", _HEALTH)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()


@contextmanager
def s3_server(folder: Path, bucket: str = BUCKET) -> Iterator[S3Server]:
    """A server that runs in the block."""
    server = S3Server(folder, bucket)
    try:
        server.start()
        yield server
    finally:
        server.close()
