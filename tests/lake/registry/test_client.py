"""The client of a schema registry: what it reads, and a clear error for everything that is none."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.errors import SettingError
from kafscale.lake.registry import client as clients
from kafscale.lake.registry.client import (
    RegistryAccess,
    RegistryClient,
    RegistryError,
    RegistryUnavailableError,
)
from kafscale.lake.registry.documents import FoundSchema, Reference, SchemaType
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.schema_registry import Answer, SchemaRegistry, basic, schema_registry

SECRET = "s3cret-of-the-registry"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def opened(registry: SchemaRegistry, **more: object) -> RegistryClient:
    access = RegistryAccess(url=registry.url, **more)  # type: ignore[arg-type]
    return RegistryClient(access, sleep=lambda _: None)


def test_schemas_by_id_and_by_subject_with_references(registry: SchemaRegistry) -> None:
    registry.register("country", {"type": "enum", "name": "Country", "symbols": ["DE"]})
    number = registry.register("a/b c", '"string"', references=[("Country", "country", 1)])
    wanted = FoundSchema(
        schema_id=number,
        schema_type=SchemaType.AVRO,
        text='"string"',
        references=(Reference(name="Country", subject="country", version=1),),
    )
    asking = opened(registry)
    assert asking.schema(number) == wanted
    assert asking.version("a/b c", None) == wanted
    assert asking.version("a/b c", 1) == wanted
    assert asking.schema(99) is None
    assert asking.version("a/b c", 2) is None
    assert asking.version("none", None) is None
    assert all(sent is None for sent in registry.sent)


def test_a_path_before_the_api_is_kept(registry: SchemaRegistry) -> None:
    registry.fault = lambda target: (
        (200, b'{"schema": "\\"int\\""}', {}) if target == "/apis/v7/schemas/ids/1" else None
    )
    asking = RegistryClient(RegistryAccess(url=f"{registry.url}/apis/v7/"))
    found = asking.schema(1)
    assert found is not None
    assert found.text == '"int"'


@pytest.mark.parametrize(
    ("more", "header"),
    [({"user_info": f"me:{SECRET}"}, basic("me", SECRET)), ({"token": SECRET}, f"Bearer {SECRET}")],
)
def test_credentials_are_sent_and_never_shown(
    registry: SchemaRegistry, more: dict[str, str], header: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    registry.authorization = header
    registry.register("orders-value", '"int"')
    assert opened(registry, **more).schema(1) is not None
    assert registry.sent == [header]
    registry.authorization = "other"
    with pytest.raises(
        RegistryError, match=r"refuses /schemas/ids/1 with 401 \('User cannot .*--schema-registry-token"
    ) as refused:
        opened(registry, **more).schema(1)
    access = RegistryAccess(url="http://r", user_info=more.get("user_info"), token=more.get("token"))
    shown = f"{refused.value!r} {access!r} {caplog.text}"
    assert SECRET not in shown
    assert header not in shown


def endless(_: str) -> Answer:
    return 200, b"[" * (clients.MAX_ANSWER_BYTES + 1), {}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (302, b"", {"Location": "http://u:p@other/x"}),
            r"redirects .*http://\*\*\*@other/x', which is not followed",
        ),
        ((200, b"<html>", {}), "is no JSON object; see that the URL"),
        ((200, b"[]", {}), "is no JSON object"),
        ((200, b"[" * 100_000, {}), "is no JSON object"),
        ((200, b"{}", {}), "has no text `schema`"),
        ((200, b'{"schema": 1}', {}), "has no text `schema`"),
        (
            (200, b'{"schema": "", "schemaType": "XML"}', {}),
            "has the type 'XML'; known are AVRO, JSON, PROTOBUF",
        ),
        ((200, b'{"schema": "", "references": [{"name": "x"}]}', {}), "a reference without name"),
        ((404, b"not here", {}), "has status 404"),
        ((404, b'{"error_code": 404, "message": "HTTP 404"}', {}), r"has status 404 \('HTTP 404'\)"),
        ((400, b'{"message": "x"}', {}), "has status 400"),
    ],
)
def test_what_is_no_registry_is_said(registry: SchemaRegistry, answer: Answer, words: str) -> None:
    registry.fault = lambda _: answer
    with pytest.raises(RegistryError, match=words) as strange:
        opened(registry).schema(1)
    assert not isinstance(strange.value, RegistryUnavailableError)
    assert len(registry.asked) == 1, "asked again without hope"
    assert "u:p" not in str(strange.value)


def test_an_answer_that_is_too_large_is_cut_off(registry: SchemaRegistry) -> None:
    registry.fault = endless
    with pytest.raises(RegistryError, match="is larger than 16,777,216 bytes"):
        opened(registry).schema(1)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failure_that_passes_is_tried_again(registry: SchemaRegistry, status: int) -> None:
    registry.register("orders-value", '"int"')
    left = [status, status]
    registry.fault = lambda _: (left.pop(), b"", {}) if left else None
    assert opened(registry).schema(1) is not None
    registry.fault = lambda _: (status, b'{"message": "busy"}', {})
    with pytest.raises(RegistryUnavailableError, match=rf"answers {status} to /schemas/ids/1 \('busy'\)"):
        opened(registry).schema(1)
    assert len(registry.asked) == 6


def test_a_slow_answer_ends_at_the_deadline(registry: SchemaRegistry) -> None:
    """Each piece comes in time, and all of them together do not."""
    registry.fault = lambda _: (200, b"x" * 300_000, {})
    times = iter(range(0, 1000, 10))
    asking = RegistryClient(
        RegistryAccess(url=registry.url, timeout_sec=25), clock=lambda: float(next(times))
    )
    with pytest.raises(RegistryUnavailableError, match="has not finished /schemas/ids/1 within 25 s"):
        asking.schema(1)


def test_no_answer_says_which_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RegistryUnavailableError, match=f"the schema registry {url} does not answer"):
        RegistryClient(RegistryAccess(url=url), sleep=lambda _: None).schema(1)


def test_tls_with_a_ca_of_ones_own(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with schema_registry((certificates.server.cert, certificates.server.key)) as registry:
        registry.register("orders-value", '"int"')
        assert opened(registry, ca_file=certificates.ca).schema(1) is not None
        for other in (None, certificates.stranger_ca):
            with pytest.raises(
                RegistryError, match=r"no certificate that is trusted here.*--schema-registry-ca"
            ):
                opened(registry, ca_file=other).schema(1)


@pytest.mark.parametrize(
    ("access", "words"),
    [
        (RegistryAccess(url="registry:8081"), "must be the URL of a registry"),
        (RegistryAccess(url="ftp://r"), "must be the URL of a registry"),
        (RegistryAccess(url=f"http://me:{SECRET}@r"), "--schema-registry-user-info env:VARIABLE"),
        (RegistryAccess(url="http://r", user_info="a:b", token="c"), "give one of them"),
        (RegistryAccess(url="http://r", user_info=SECRET), "must hold USER:PASSWORD"),
        (RegistryAccess(url="http://r", ca_file=Path("x")), "is of no use with http://"),
        (
            RegistryAccess(url="https://r", ca_file=Path("/none/ca.pem")),
            "must be a file of certificates in PEM",
        ),
    ],
)
def test_access_that_is_not_legal_is_refused(access: RegistryAccess, words: str) -> None:
    with pytest.raises(SettingError, match=words) as refused:
        RegistryClient(access)
    assert SECRET not in str(refused.value)


def test_a_descriptor_is_asked_for_with_protobuf(registry: SchemaRegistry) -> None:
    registry.register("orders-value", 'syntax = "proto3";', "PROTOBUF")
    asking = opened(registry)
    text = asking.schema(1)
    assert text is not None
    assert text.text.startswith("syntax"), "a registry that ignores the format"
    registry.fault = lambda target: (
        (200, json.dumps({"schema": "CgA="}).encode(), {}) if target.endswith("?format=serialized") else None
    )
    for found in (asking.schema(1), asking.version("orders-value", None)):
        assert found is not None
        assert (found.text, found.schema_type) == ("CgA=", SchemaType.PROTOBUF)
    # Karapace 4.1 cannot give one for a schema with imports.
    registry.fault = lambda target: (500, b"{}", {}) if target.endswith("?format=serialized") else None
    found = asking.schema(1)
    assert found is not None
    assert found.text == text.text
