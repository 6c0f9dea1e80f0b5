"""A real etcd in processes: one member or several, stopped, killed, paused, with TLS and users if required."""

import itertools
import signal
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import trustme
from aetcd import rpc

from tests.support.etcd_install import etcd_binary, etcd_missing
from tests.support.ports import free_port
from tests.support.process import ServerProcess, clean_environment
from tests.support.waiting import PATIENCE_SEC, wait_until

HOST = "127.0.0.1"
ROOT_PASSWORD = "root's password"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: an authority, its certificate for a server at 127.0.0.1, and one for a client."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def make_tls(folder: Path) -> TlsFiles:
    """A new authority and its certificates."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    files = TlsFiles(
        ca=folder / "ca.pem",
        server_cert=folder / "server.pem",
        server_key=folder / "server.key",
        client_cert=folder / "client.pem",
        client_key=folder / "client.key",
    )
    authority.cert_pem.write_to_path(str(files.ca))
    for name, cert, key in (
        (HOST, files.server_cert, files.server_key),
        ("broker", files.client_cert, files.client_key),
    ):
        issued = authority.issue_cert(name, common_name=name)
        issued.private_key_pem.write_to_path(str(key))
        for part in issued.cert_chain_pems:
            part.write_to_path(str(cert), append=True)
    return files


def skip_without_etcd() -> None:
    """Skip a test that needs etcd if there is none."""
    missing = etcd_missing()
    if missing:
        pytest.skip(missing)


class EtcdServer(ServerProcess):
    """One member; its data and its ports stay over a restart. Skips the test where there is no etcd.

    `peers` are all members of its cluster by name and peer port; none: it is alone. With `tls` it takes
    clients with a certificate of the same authority only. `flags` are further flags of etcd, which apply from the
    next start and over those that are given anyway.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str | None = None,
        peer_port: int | None = None,
        peers: dict[str, int] | None = None,
        tls: TlsFiles | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        skip_without_etcd()
        super().__init__(name or f"etcd-{next(_numbers)}", folder)
        self.client_port = free_port()
        self._health_port = free_port()
        self._peer_port = peer_port or free_port()
        self._peers = peers or {self.name: self._peer_port}
        self._tls = tls
        self.flags = tuple(flags)

    @property
    def endpoint(self) -> str:
        return f"{'https' if self._tls else 'http'}://{HOST}:{self.client_port}"

    @property
    def data_folder(self) -> Path:
        return self.folder / f"{self.name}.data"

    @property
    def peer_url(self) -> str:
        return f"http://{HOST}:{self._peer_port}"

    def start(self, timeout_s: float = PATIENCE_SEC) -> None:
        """Start it and wait until it accepts requests."""
        self.begin()
        self.wait_healthy(timeout_s)

    def begin(self) -> None:
        """Start it without waiting: without most of its peers it accepts no requests."""
        peer = self.peer_url
        cluster = ",".join(f"{name}=http://{HOST}:{port}" for name, port in self._peers.items())
        command = [
            str(etcd_binary()), "--name", self.name, "--data-dir", str(self.data_folder),
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", cluster, "--initial-cluster-token", str(self.folder),
            "--listen-metrics-urls", f"http://{HOST}:{self._health_port}",
            # Elections, and with them the shortest lease, take a second instead of two.
            "--heartbeat-interval", "50", "--election-timeout", "500",
            "--logger", "zap", "--log-outputs", "stderr",
            "--bcrypt-cost", "4",  # the least: passwords of tests are no secrets
            *self.flags,
        ]  # fmt: skip
        if self._tls is not None:
            command += [
                "--cert-file", str(self._tls.server_cert), "--key-file", str(self._tls.server_key),
                "--trusted-ca-file", str(self._tls.ca), "--client-cert-auth",
            ]  # fmt: skip
        self.launch(command, clean_environment() | {"ETCD_UNSUPPORTED_ARCH": ""})

    def wait_healthy(self, timeout_s: float = PATIENCE_SEC) -> None:
        """Wait until it has a leader and accepts requests."""
        wait_until(self._is_healthy, f"{self.name} is healthy", timeout_s)

    def clean_exit_code(self) -> int:
        return -signal.SIGTERM  # etcd exits by the signal when it is done

    def leads(self) -> bool:
        """True if it runs and leads its cluster."""
        try:
            return self.metric("etcd_server_is_leader") == 1
        except OSError:
            return False

    def metric(self, name: str) -> float:
        """The value of one of its metrics that has no labels."""
        for line in self.metrics_page().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"etcd has no metric {name}")

    def metrics_page(self) -> str:
        """All of its metrics, in Prometheus' text format."""
        return self._get("/metrics")

    def compact(self, revision: int) -> None:
        """Compact the history before the revision, as automatic compaction does."""
        with grpc.insecure_channel(self.endpoint.removeprefix("http://")) as channel:
            rpc.KVStub(channel).Compact(
                rpc.CompactionRequest(revision=revision, physical=True), timeout=PATIENCE_SEC
            )

    def add_user(self, name: str, password: str, prefix: str) -> None:
        """A user who may read and write below the prefix; from then on every access needs a user."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        permission = rpc.Permission(
            permType=rpc.Permission.READWRITE, key=prefix.encode(), range_end=end.encode()
        )
        with grpc.insecure_channel(self.endpoint.removeprefix("http://")) as channel:
            auth = rpc.AuthStub(channel)
            for user, secret, role in (("root", ROOT_PASSWORD, "root"), (name, password, f"{name}'s")):
                auth.UserAdd(rpc.AuthUserAddRequest(name=user, password=secret), timeout=PATIENCE_SEC)
                auth.RoleAdd(rpc.AuthRoleAddRequest(name=role), timeout=PATIENCE_SEC)
                auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=user, role=role), timeout=PATIENCE_SEC)
            grant = rpc.AuthRoleGrantPermissionRequest(name=f"{name}'s", perm=permission)
            auth.RoleGrantPermission(grant, timeout=PATIENCE_SEC)
            auth.AuthEnable(rpc.AuthEnableRequest(), timeout=PATIENCE_SEC)

    def set_password(self, name: str, password: str) -> None:
        """As root. Every token of the user is invalid from then on."""
        with grpc.insecure_channel(self.endpoint.removeprefix("http://")) as channel:
            auth = rpc.AuthStub(channel)
            root = auth.Authenticate(
                rpc.AuthenticateRequest(name="root", password=ROOT_PASSWORD), timeout=PATIENCE_SEC
            )
            change = rpc.AuthUserChangePasswordRequest(name=name, password=password)
            auth.UserChangePassword(change, timeout=PATIENCE_SEC, metadata=(("token", root.token),))

    def _is_healthy(self) -> bool:
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        try:
            return '"health":"true"' in self._get("/health")
        except OSError:
            return False

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{HOST}:{self._health_port}{path}", timeout=2) as answer:
            text: str = answer.read().decode()
            return text


class EtcdCluster:
    """Several members, three of which two must run."""

    def __init__(
        self, folder: Path, size: int = 3, flags: Sequence[str] = (), names: Sequence[str] = ()
    ) -> None:
        names = names or [f"etcd-{next(_numbers)}" for _ in range(size)]
        peers = {name: free_port() for name in names}
        self.members = [
            EtcdServer(folder, name=name, peer_port=port, peers=peers, flags=flags)
            for name, port in peers.items()
        ]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> None:
        for member in self.members:
            member.begin()
        for member in self.members:
            member.wait_healthy()

    def leader(self) -> EtcdServer:
        """The leader among the running members."""
        leading: list[EtcdServer] = wait_until(
            lambda: [each for each in self.members if each.leads()], "one of the members leads"
        )
        return leading[0]

    def close(self) -> None:
        for member in self.members:
            member.close()


@contextmanager
def etcd_server(
    folder: Path, *, tls: TlsFiles | None = None, flags: Sequence[str] = ()
) -> Iterator[EtcdServer]:
    """A single member that runs in the block."""
    server = EtcdServer(folder, tls=tls, flags=flags)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def etcd_cluster(
    folder: Path, size: int = 3, flags: Sequence[str] = (), names: Sequence[str] = ()
) -> Iterator[EtcdCluster]:
    """A cluster that runs in the block; with these names, or any."""
    cluster = EtcdCluster(folder, size, flags, names)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


class _Shared:
    """One etcd for all tests of a file that only need one; each has its own prefix."""

    def __init__(self) -> None:
        self._server: EtcdServer | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def endpoint(self) -> str:
        """Starts it at the first call."""
        if self._server is None:
            self._folder = tempfile.TemporaryDirectory(prefix="kafscale-etcd-")
            self._server = EtcdServer(Path(self._folder.name))
            self._server.start()
        return self._server.endpoint

    def close(self) -> None:
        if self._server is not None and self._folder is not None:
            self._server.close()
            self._folder.cleanup()
            self._server = self._folder = None


SHARED = _Shared()


@pytest.fixture(scope="module", autouse=True)
def shared_etcd_ends() -> Iterator[None]:
    """For the conftest of every folder whose tests use `SHARED`.

    Not for longer than a file: an idle etcd needs as much in a minute as a start.
    """
    yield
    SHARED.close()
