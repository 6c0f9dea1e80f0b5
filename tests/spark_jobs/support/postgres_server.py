"""A PostgreSQL server of its own, for catalogs in a database."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tests.support.ports import free_port
from tests.support.process import Process, ServerProcess, clean_environment
from tests.support.waiting import wait_until

USER, PASSWORD, DATABASE = "iceberg", "of-the-catalog", "postgres"
_PROGRAMS = ("postgres", "initdb", "pg_isready")
_DEBIAN = "/usr/lib/postgresql"


class PostgresServer(ServerProcess):
    """Listens on 127.0.0.1 only. It refuses root, so as root it runs as the user postgres."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("postgres", folder)
        self._port = port
        self._user = _other_user()
        if self._user is not None:
            shutil.chown(folder, self._user)

    @property
    def jdbc_uri(self) -> str:
        """For Iceberg's JDBC catalog, user and password apart."""
        return f"jdbc:postgresql://127.0.0.1:{self._port}/{DATABASE}"

    @property
    def python_uri(self) -> str:
        """For pyiceberg's SQL catalog."""
        return f"postgresql+psycopg2://{USER}:{PASSWORD}@127.0.0.1:{self._port}/{DATABASE}"

    def start(self) -> "PostgresServer":
        """Make a database and start it; waits until it takes connections."""
        data, password = self.folder / "data", self.folder / "password"
        password.write_text(PASSWORD)
        if self._user is not None:
            shutil.chown(password, self._user)
        self._run(
            "initdb", "--pgdata", str(data), "--username", USER, "--pwfile", str(password), "--auth", "scram-sha-256",
            "--no-sync", "--encoding", "UTF8", "--locale", "C",
        )  # fmt: skip
        self.launch(
            [
                _program("postgres"), "-D", str(data), "-p", str(self._port), "-h", "127.0.0.1",
                "-k", str(self.folder), "-c", "fsync=off", "-c", "shared_buffers=16MB",
            ],
            clean_environment(),
        )  # fmt: skip
        wait_until(self._is_ready, "PostgreSQL takes connections")
        return self

    def _begin(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> Process:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            start_new_session=True,
            user=self._user,
        )

    def _is_ready(self) -> bool:
        assert self.exit_code is None, self.log_tail()
        command = [_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port)]
        return subprocess.run(command, check=False, env=clean_environment()).returncode == 0

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [_program(name), *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=clean_environment(),
            user=self._user,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _other_user() -> str | None:
    return "postgres" if os.geteuid() == 0 else None


def _program(name: str) -> str:
    """On the PATH, or where Debian has it. Raises `FileNotFoundError`."""
    found = shutil.which(name)
    if found is not None:
        return found
    candidates = sorted(Path(_DEBIAN).glob(f"*/bin/{name}"))
    if not candidates:
        raise FileNotFoundError(name)
    return str(candidates[-1])


def postgres_missing() -> str | None:
    """Why there is none here, or None."""
    for name in _PROGRAMS:
        try:
            _program(name)
        except FileNotFoundError:
            return f"no {name} on the PATH (Debian package postgresql)"
    user = _other_user()
    if user is not None:
        try:
            pwd.getpwnam(user)
        except KeyError:
            return f"PostgreSQL refuses root, and there is no user {user}"
    return None


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running one, in a folder that its user may enter; nothing of it is left after the block."""
    with tempfile.TemporaryDirectory(prefix="kafscale-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = PostgresServer(folder, free_port())
        try:
            yield server.start()
        finally:
            server.close()
