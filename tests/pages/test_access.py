"""Who may see the page: by token, by the settings of clients, and by the name that a browser came to."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.ops.admin_requests import AdminRequest
from kafscale.ops.metrics_token import MetricsToken
from kafscale.pages.access import PageAccess, Verdict, protects_names
from kafscale.settings.broker import Settings, load_settings

OPEN = Settings()
TLS = {
    "KAFSCALE_SSL_CERTIFICATE_FILE": "/c",
    "KAFSCALE_SSL_KEY_FILE": "/k",
    "KAFSCALE_SSL_CLIENT_CA_FILE": "/ca",
}


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def token(tmp_path: Path) -> MetricsToken:
    file = tmp_path / "token"
    file.write_text("right:one\n")
    return MetricsToken(file)


def verdict(
    access: PageAccess, host: str | None = "127.0.0.1:9093", authorization: str | None = None
) -> Verdict:
    return access.verdict(AdminRequest(path="/", host=host, authorization=authorization))


@pytest.mark.parametrize("given", ["Bearer right:one", "bearer right:one"])
def test_token_admits_programs(token: MetricsToken, given: str) -> None:
    assert verdict(PageAccess(OPEN, token), authorization=given) is Verdict.ADMITTED


@pytest.mark.parametrize("name", ["", "admin", "a name"])
def test_token_as_password_admits_people_of_any_name(token: MetricsToken, name: str) -> None:
    given = basic(name, "right:one")
    assert verdict(PageAccess(OPEN, token), authorization=given) is Verdict.ADMITTED
    assert not token.admits(given), "metrics take a bearer token alone"


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Basic",
        "Basic ",
        "Basic !",
        "Basic right:one",
        basic("right:one", ""),
        basic("a", "right"),
        "Digest x",
    ],
)
def test_other_credentials_are_not_admitted(token: MetricsToken, given: str | None) -> None:
    assert verdict(PageAccess(OPEN, token), authorization=given) is Verdict.NEEDS_LOGIN


@given(st.text(st.characters(max_codepoint=255)))
def test_no_header_breaks_the_check(given: str) -> None:
    access = PageAccess(OPEN, MetricsToken(Path("/nowhere/token")))
    assert verdict(access, authorization=given) is Verdict.NEEDS_LOGIN
    assert verdict(access, authorization=f"Basic {given}") is Verdict.NEEDS_LOGIN


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"KAFSCALE_AUTHORIZER": "acl"}, True),
        ({"KAFSCALE_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:1"}, True),
        ({"KAFSCALE_LISTENERS": "PLAINTEXT://127.0.0.1:1,SASL_SSL://:2", **TLS}, True),
        ({"KAFSCALE_LISTENERS": "SSL://:2", **TLS, "KAFSCALE_SSL_CLIENT_AUTH": "required"}, True),
        ({"KAFSCALE_LISTENERS": "SSL://:2", **TLS, "KAFSCALE_SSL_CLIENT_AUTH": "requested"}, False),
    ],
)
def test_names_are_protected_where_clients_must_log_in(settings: dict[str, str], expected: bool) -> None:
    assert protects_names(load_settings(settings)) is expected


def test_protected_names_are_shown_only_with_a_token(token: MetricsToken) -> None:
    closed = load_settings({"KAFSCALE_AUTHORIZER": "acl"})
    assert verdict(PageAccess(closed, None), authorization="Bearer right:one") is Verdict.FORBIDDEN
    assert verdict(PageAccess(closed, token), authorization="Bearer right:one") is Verdict.ADMITTED
    assert verdict(PageAccess(closed, token)) is Verdict.NEEDS_LOGIN


@pytest.mark.parametrize(
    "host",
    [
        None,
        "127.0.0.1",
        "127.0.0.1:9093",
        "[::1]:9093",
        "10.1.2.3:80",
        "localhost",
        "LOCALHOST.:9093",
        "broker-1:9093",
    ],
)
def test_addresses_and_names_without_a_domain_are_own(host: str | None) -> None:
    assert verdict(PageAccess(OPEN, None), host) is Verdict.ADMITTED


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9093",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "[::1].evil.example",
        "[a.b]",
    ],
)
def test_name_of_a_web_site_is_refused_without_a_token(token: MetricsToken, host: str) -> None:
    assert verdict(PageAccess(OPEN, None), host) is Verdict.OTHER_HOST
    assert verdict(PageAccess(OPEN, token), host, "Bearer right:one") is Verdict.ADMITTED
