"""TLS files: what is refused, when they are read again, and what their contexts allow."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from kafscale.errors import StartupError
from kafscale.protocol.listeners import SecurityProtocol
from kafscale.security.tls_files import TlsFiles, load_contexts
from kafscale.settings.listener_kinds import ClientAuth, TlsVersion
from kafscale.settings.tls import TlsSettings
from tests.support.in_process_broker import until
from tests.support.on_uvloop import on_uvloop
from tests.support.tls_files import TlsFolder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> TlsFolder:
    return TlsFolder(tmp_path_factory.mktemp("tls"))


def settings(files: TlsFolder, **changes: Any) -> TlsSettings:
    return TlsSettings(**{**files.settings, **changes})


def test_contexts_refuse_what_is_weak(shared: TlsFolder) -> None:
    context = load_contexts(settings(shared)).of(SecurityProtocol.SSL)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    old = [cipher for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert old
    assert all(cipher["aead"] and cipher["kea"] == "kx-ecdhe" for cipher in old)


def test_only_ssl_listeners_ask_for_certificates(shared: TlsFolder) -> None:
    contexts = load_contexts(
        TlsSettings(**{**shared.mutual_settings, "ssl_client_auth": ClientAuth.REQUIRED})
    )
    assert contexts.of(SecurityProtocol.SSL).verify_mode is ssl.CERT_REQUIRED
    assert contexts.of(SecurityProtocol.SSL).num_tickets == 0
    assert contexts.of(SecurityProtocol.SASL_SSL).verify_mode is ssl.CERT_NONE


def test_one_version_alone_can_be_served(shared: TlsFolder) -> None:
    context = load_contexts(settings(shared, ssl_enabled_protocols=(TlsVersion.V1_3,))).of(
        SecurityProtocol.SSL
    )
    assert context.minimum_version is context.maximum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("variable", "content"),
    [
        ("ssl_certificate_file", b""),
        ("ssl_certificate_file", b"no pem"),
        ("ssl_key_file", b"no pem"),
        ("ssl_client_ca_file", b"no pem"),
        ("ssl_client_ca_file", b""),
    ],
)
def test_files_without_content_are_refused_by_name(
    shared: TlsFolder, tmp_path: Path, variable: str, content: bytes
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_bytes(content)
    given = {**shared.mutual_settings, "ssl_client_auth": ClientAuth.REQUIRED, variable: bad}
    with pytest.raises(StartupError, match=f"KAFSCALE_{variable.upper()}={bad}"):
        TlsFiles(TlsSettings(**given))


def test_a_key_of_another_certificate_is_refused(shared: TlsFolder, tmp_path: Path) -> None:
    other = TlsFolder(tmp_path / "other")
    with pytest.raises(StartupError, match=r"key values mismatch|no certificate with its key"):
        TlsFiles(settings(shared, ssl_key_file=other.folder / "tls.key"))


def test_files_that_stay_are_not_read_again(shared: TlsFolder) -> None:
    files = TlsFiles(settings(shared))
    before = files.contexts
    files.check()
    assert files.contexts is before


def test_a_swapped_symlink_is_a_change(tmp_path: Path) -> None:
    # As Kubernetes mounts a Secret: files are links into `..data`, a link that is replaced.
    for version in ("one", "two"):
        TlsFolder(tmp_path / version)
    data = tmp_path / "..data"
    data.symlink_to("one")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    files = TlsFiles(
        TlsSettings(ssl_certificate_file=tmp_path / "tls.crt", ssl_key_file=tmp_path / "tls.key")
    )
    before = files.contexts
    (tmp_path / "..new").symlink_to("two")
    os.replace(tmp_path / "..new", data)
    files.check()
    assert files.contexts is not before


@pytest.mark.parametrize("how", ["spoiled", "missing", "other key", "version"])
def test_a_change_of_no_use_keeps_what_was(tmp_path: Path, how: str) -> None:
    folder, failures = TlsFolder(tmp_path / "tls"), []
    files = TlsFiles(settings(folder), lambda: failures.append(how))
    before = files.contexts
    if how == "spoiled":
        folder.spoil()
    elif how == "missing":
        (folder.folder / "tls.crt").unlink()
    elif how == "version":
        folder.claim_version(8)
    else:
        key = (TlsFolder(tmp_path / "other").folder / "tls.key").read_bytes()
        (folder.folder / "tls.key").write_bytes(key)
    files.check()
    files.check()
    assert (files.contexts, failures) == (before, [how])
    folder.renew()
    files.check()
    assert files.contexts is not before


def test_the_expiry_is_the_certificates(shared: TlsFolder) -> None:
    # trustme's certificates end on 1 January 3000.
    assert load_contexts(settings(shared)).expires_at_sec == pytest.approx(32_503_680_000, abs=86_400)


@on_uvloop
async def _changes_are_seen(folder: TlsFolder) -> None:
    files = TlsFiles(settings(folder))
    before = files.contexts
    running = asyncio.create_task(files.run(check_sec=0.01))
    folder.renew()
    await until(lambda: files.contexts is not before, "the new files are read")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_changes_are_seen_while_it_runs(tmp_path: Path) -> None:
    _changes_are_seen(TlsFolder(tmp_path / "tls"))
