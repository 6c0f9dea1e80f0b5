"""The certificates of a managed etcd: which are made when, and that a real etcd takes these and no others."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from kafscale.operator import certificates
from kafscale.operator.certificates import CA, CERTIFICATE, KEY, KeyPair
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.etcd.certificates import CLIENT_NAME, plan_secrets
from kafscale.operator.etcd.maintenance import EtcdMaintenance, MaintenanceTimeouts, TlsFiles
from kafscale.operator.manifests import etcd_set, etcd_start
from kafscale.operator.manifests.objects import Manifest
from tests.support.etcd_server import EtcdServer
from tests.support.ports import free_port
from tests.support.waiting import wait_until_async

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["c-etcd-authority", "c-etcd-members", "c-etcd-clients"]
QUICK = MaintenanceTimeouts(answer_sec=5.0)
Held = dict[str, dict[str, bytes]]


def cluster() -> ClusterSpec:
    spec = {"brokers": {"replicas": 1}, "s3": {"bucket": "b"}, "etcd": {"managed": {}}}
    return cluster_spec("c", "shop", spec)


def data(secret: Manifest) -> dict[str, bytes]:
    return {key: base64.b64decode(text) for key, text in secret["data"].items()}


def written(held: Held, now: datetime = NOW) -> tuple[list[str], Held]:
    """The names of the Secrets that are written, and all of them as they are then."""
    planned = plan_secrets(cluster(), 3, held, now)
    after = held | {one["metadata"]["name"]: data(one) for one in planned}
    return [one["metadata"]["name"] for one in planned], after


def certificate(held: Held, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(held[name][CERTIFICATE])


def test_first_pass_makes_all_and_the_second_none() -> None:
    names, held = written({})
    assert names == NAMES
    assert written(held) == ([], held)


def test_certificates_are_issued_again_in_their_last_third() -> None:
    _, held = written({})
    assert written(held, NOW + timedelta(days=240))[0] == []
    names, later = written(held, NOW + timedelta(days=250))
    assert names == NAMES[1:]
    assert later[NAMES[0]] == held[NAMES[0]]
    assert later[NAMES[1]][CA] == held[NAMES[1]][CA]


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (NAMES[0], None, NAMES),
        (NAMES[1], None, NAMES[1:2]),
        (NAMES[2], {KEY: b"no key"}, NAMES[2:]),
        (NAMES[2], {CA: b"another"}, NAMES[2:]),
        (NAMES[1], {CERTIFICATE: b""}, NAMES[1:2]),
    ],
)
def test_damaged_secret_is_written_again(
    name: str, change: dict[str, bytes] | None, expected: list[str]
) -> None:
    _, held = written({})
    if change is None:
        del held[name]
    else:
        held[name] = held[name] | change
    names, after = written(held)
    assert names == expected
    assert written(after)[0] == []


def test_more_members_get_a_certificate_with_their_names() -> None:
    _, held = written({})
    planned = plan_secrets(cluster(), 5, held, NOW)
    assert [one["metadata"]["name"] for one in planned] == NAMES[1:2]


def test_only_members_are_servers() -> None:
    _, held = written({})
    usages = {
        name: certificate(held, name).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        for name in NAMES[1:]
    }
    assert [usage._name for usage in usages[NAMES[1]]] == ["clientAuth", "serverAuth"]
    assert [usage._name for usage in usages[NAMES[2]]] == ["clientAuth"]


def test_authority_key_is_in_no_pod() -> None:
    managed = cluster().etcd.managed
    assert managed is not None
    pod = etcd_set.etcd_set(cluster(), managed, "etcd:1", 3)["spec"]["template"]["spec"]
    assert [one["secret"]["secretName"] for one in pod["volumes"]] == [NAMES[1]]
    _, held = written({})
    assert held[NAMES[0]][KEY] not in (held[NAMES[1]][KEY], held[NAMES[2]][KEY])


@dataclass(frozen=True)
class Scene:
    """Members that run with the flags and the certificates that the operator gives them."""

    servers: list[EtcdServer]
    held: Held
    folder: Path

    def tls(self, secret: str | dict[str, bytes]) -> TlsFiles:
        held = self.held[secret] if isinstance(secret, str) else secret
        for key in (CA, CERTIFICATE, KEY):
            (self.folder / key).write_bytes(held[key])
        return TlsFiles(self.folder / CA, self.folder / CERTIFICATE, self.folder / KEY)

    def keeper(self, tls: TlsFiles | None, scheme: str = "https") -> EtcdMaintenance:
        urls = {each.name: f"{scheme}://127.0.0.1:{each.client_port}" for each in self.servers}
        return EtcdMaintenance(urls, QUICK, tls)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    names = [f"c-etcd-{number}" for number in range(3)]
    peers = {name: free_port() for name in names}
    _, held = written({}, datetime.now(UTC))
    folder = tmp_path / "tls"
    folder.mkdir()
    for key, content in held[NAMES[1]].items():
        (folder / key).write_bytes(content)
    servers = [EtcdServer(tmp_path / name, name=name, peer_port=peers[name], peers=peers) for name in names]
    initial = ",".join(f"{name}=https://127.0.0.1:{port}" for name, port in peers.items())
    for server in servers:
        client, peer = (
            f"https://127.0.0.1:{server.client_port}",
            f"https://127.0.0.1:{peers[server.name]}",
        )
        server.flags = (
            *tls_flags(folder),
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={initial}",
            "--initial-cluster-token=test",
        )
    try:
        for server in servers:
            server.begin()
        for server in servers:
            server.wait_healthy()
        yield Scene(servers, held, tmp_path)
    finally:
        for server in servers:
            server.close()


def tls_flags(folder: Path) -> list[str]:
    """Those of the StatefulSet, with the folder where the files are here."""
    managed = cluster().etcd.managed
    assert managed is not None
    pod: dict[str, Any] = etcd_set.etcd_set(cluster(), managed, "etcd:1", 3)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mount = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == "tls")
    words = ("cert", "key", "ca-file")
    return [
        flag.replace(mount, str(folder)) for flag in container["args"] if any(word in flag for word in words)
    ]


async def test_real_etcd_takes_the_clients_certificate_only(scene: Scene) -> None:
    keeper = scene.keeper(scene.tls(NAMES[2]))

    async def all_answer() -> bool:
        return not (await keeper.look()).silent

    await wait_until_async(all_answer, "three members answer each other and the operator")
    stranger = certificates.new_authority("stranger", datetime.now(UTC))
    pair: KeyPair = certificates.issue(stranger, CLIENT_NAME, (), datetime.now(UTC))
    foreign = scene.held[NAMES[2]] | {CERTIFICATE: pair.certificate, KEY: pair.key}
    for other in (scene.keeper(scene.tls(foreign)), scene.keeper(None), scene.keeper(None, "http")):
        assert len((await other.look()).silent) == 3
    assert etcd_start.MEMBER_NAME in certificate(scene.held, NAMES[1]).subject.rfc4514_string()
