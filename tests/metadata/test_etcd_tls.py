"""etcd over TLS with client certificates, and what each wrong file or scheme hears at the start."""

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafscale.errors import StartupError
from kafscale.metadata.store import KeyValue, Snapshot
from tests.metadata.etcd_stores import etcd_store, put
from tests.support.etcd_server import SHARED, EtcdServer, TlsFiles, etcd_server, make_tls


@dataclass(frozen=True, slots=True)
class Secured:
    server: EtcdServer
    files: TlsFiles
    others: TlsFiles  # of an authority that the server does not know


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    files = make_tls(folder / "ours")
    with etcd_server(folder, tls=files) as server:
        yield Secured(server, files, make_tls(folder / "theirs"))


async def test_everything_works_over_tls(secured: Secured) -> None:
    files = secured.files
    async with (
        etcd_store(
            secured.server.endpoint, ca=files.ca, cert=files.client_cert, key=files.client_key
        ) as store,
        aclosing(store.watch("k")) as events,
    ):
        assert isinstance(await anext(events), Snapshot)
        revision = await put(store, "k")
        change = KeyValue(key="k", value=b"value", mod_revision=revision)
        event = await anext(events)
        assert not isinstance(event, Snapshot)
        assert event.puts_and_deletes == (change,)
        assert await store.renew_lease(await store.grant_lease(60))


async def refused(
    match: str, endpoint: str, ca: Path | None = None, cert: Path | None = None, key: Path | None = None
) -> None:
    with pytest.raises(StartupError, match=match):
        async with etcd_store(endpoint, ca=ca, cert=cert, key=key):
            pass


async def test_an_authority_that_did_not_sign_etcds_certificate(secured: Secured) -> None:
    files = secured.files
    endpoint = secured.server.endpoint
    await refused("KAFSCALE_ETCD_CA", endpoint, secured.others.ca, files.client_cert, files.client_key)
    await refused("KAFSCALE_ETCD_CA", endpoint, None, files.client_cert, files.client_key)


async def test_a_name_that_etcds_certificate_does_not_have(secured: Secured) -> None:
    files = secured.files
    endpoint = secured.server.endpoint.replace("127.0.0.1", "localhost")
    await refused(
        "KAFSCALE_ETCD_ENDPOINTS to a name", endpoint, files.ca, files.client_cert, files.client_key
    )


async def test_a_client_certificate_that_etcd_does_not_take(secured: Secured) -> None:
    files, others = secured.files, secured.others
    endpoint = secured.server.endpoint
    await refused(
        r"refuses the certificate .*KAFSCALE_ETCD_CERT",
        endpoint,
        files.ca,
        others.client_cert,
        others.client_key,
    )
    await refused(r"without a certificate .*KAFSCALE_ETCD_CERT", endpoint, files.ca)


async def test_a_key_of_another_certificate(secured: Secured) -> None:
    files = secured.files
    await refused(
        "KAFSCALE_ETCD_CERT and KAFSCALE_ETCD_KEY",
        secured.server.endpoint,
        files.ca,
        files.client_cert,
        secured.others.client_key,
    )


async def test_files_that_are_not_there_or_not_pem(secured: Secured, tmp_path: Path) -> None:
    files = secured.files
    endpoint = secured.server.endpoint
    (tmp_path / "text").write_text("no certificate")
    await refused(f"cannot read {tmp_path}/none", endpoint, tmp_path / "none")
    await refused("KAFSCALE_ETCD_CA", endpoint, tmp_path / "text", files.client_cert, files.client_key)
    await refused("KAFSCALE_ETCD_CERT", endpoint, files.ca, tmp_path / "text", files.client_key)


async def test_the_wrong_scheme(secured: Secured) -> None:
    plain = secured.server.endpoint.replace("https", "http")
    await refused("speaks TLS: write https://", plain)
    await refused("does not speak TLS: write http://", SHARED.endpoint().replace("http", "https"))
