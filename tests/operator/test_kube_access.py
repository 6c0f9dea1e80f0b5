"""Where the Kubernetes API is and as whom to come: a pod's files, a kubeconfig, and what is wrong with them."""

import base64
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme

from kafscale.operator.errors import KubeAccessError
from kafscale.operator.kube.access import find_access, from_kubeconfig, from_service_account


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = folder / "kubeconfig"
    config = {
        "current-context": "here",
        "contexts": [
            {"name": "there", "context": {"cluster": "none", "user": "none"}},
            {"name": "here", "context": {"cluster": "one", "user": "me", "namespace": "ns"}},
        ],
        "clusters": [{"name": "one", "cluster": {"server": "https://api:6443/", **cluster}}],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(json.dumps(config))
    return path


def encoded(pem: trustme.Blob) -> str:
    return base64.b64encode(pem.bytes()).decode()


def test_a_pod_comes_as_its_account(tmp_path: Path, authority: trustme.CA) -> None:
    (tmp_path / "namespace").write_text("ns\n")
    (tmp_path / "token").write_text("secret\n")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = from_service_account(environment, tmp_path)
    assert (access.server, access.namespace, access.bearer()) == ("https://[fd00::1]:6443", "ns", "secret")
    assert len(access.tls().get_ca_certs()) >= 1


def test_a_pod_without_its_files_gets_the_reason(tmp_path: Path) -> None:
    with pytest.raises(KubeAccessError, match="automountServiceAccountToken"):
        from_service_account({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)


def test_keys_may_be_text_in_the_file(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = authority.issue_cert("user@example.com", common_name="me")
    user = {
        "client-certificate-data": encoded(issued.cert_chain_pems[0]),
        "client-key-data": encoded(issued.private_key_pem),
    }
    cluster = {"certificate-authority-data": encoded(authority.cert_pem)}
    access = from_kubeconfig(kubeconfig(tmp_path, cluster, user))
    assert (access.server, access.namespace) == ("https://api:6443", "ns")
    keys = tmp_path / "keys"
    keys.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(keys))
    modes: set[int] = set()
    load = ssl.SSLContext.load_cert_chain

    def loading(context: ssl.SSLContext, certfile: Any, keyfile: Any) -> None:
        modes.update(path.stat().st_mode & 0o777 for path in keys.iterdir())
        load(context, certfile, keyfile)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loading)
    assert access.tls().verify_mode is ssl.CERT_REQUIRED
    assert modes == {0o600}
    assert list(keys.iterdir()) == []


def test_files_may_be_named_beside_the_file(tmp_path: Path, authority: trustme.CA) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "token").write_text("secret")
    cluster, user = {"certificate-authority": "ca.pem"}, {"tokenFile": "token"}
    access = find_access({"KUBECONFIG": str(kubeconfig(tmp_path, cluster, user))})
    assert access.bearer() == "secret"
    assert len(access.tls().get_ca_certs()) == 1


def test_text_in_the_kubeconfig_wins_over_a_file(tmp_path: Path, authority: trustme.CA) -> None:
    cluster = {
        "certificate-authority": "missing.pem",
        "certificate-authority-data": encoded(authority.cert_pem),
    }
    access = from_kubeconfig(kubeconfig(tmp_path, cluster, {"token": "secret"}))
    assert len(access.tls().get_ca_certs()) == 1


@pytest.mark.parametrize(
    "cluster",
    [
        {"certificate-authority": "missing.pem"},
        {"certificate-authority-data": "a"},
        {"certificate-authority-data": base64.b64encode(b"no certificate").decode()},
    ],
)
def test_a_certificate_that_cannot_be_read_names_the_server(tmp_path: Path, cluster: dict[str, Any]) -> None:
    access = from_kubeconfig(kubeconfig(tmp_path, cluster, {"token": "secret"}))
    with pytest.raises(KubeAccessError, match="the certificates for https://api:6443 cannot be read"):
        access.tls()


@pytest.mark.parametrize(
    "text", ["", "[]", "{current-context: x, contexts: [], clusters: [], users: []}", "a: : b"]
)
def test_a_file_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(KubeAccessError, match=str(path)):
        find_access({"KUBECONFIG": str(path)})


def test_a_user_that_some_program_makes_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {}, {"exec": {"command": "aws"}})
    with pytest.raises(KubeAccessError, match="comes by exec: a token or a certificate is needed"):
        from_kubeconfig(path)


def test_nowhere_is_said_with_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(KubeAccessError, match="KUBECONFIG"):
        find_access({"HOME": str(tmp_path)})
