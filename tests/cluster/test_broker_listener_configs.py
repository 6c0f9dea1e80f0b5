"""Listeners and TLS as DescribeConfigs shows them."""

from collections.abc import Mapping

import pytest

from kafscale.cluster.broker_configs import describe_broker
from kafscale.cluster.config_kinds import ConfigSource
from kafscale.metadata.model import BrokerRecord, Endpoint, ListenerName
from kafscale.settings.broker import load_settings

TLS = {
    "KAFSCALE_LISTENERS": "INSIDE://:9092,OUTSIDE://127.0.0.1:9095",
    "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:SSL,OUTSIDE:PLAINTEXT,UNUSED:SSL",
    "KAFSCALE_SSL_CERTIFICATE_FILE": "tls.crt",
    "KAFSCALE_SSL_KEY_FILE": "tls.key",
    "KAFSCALE_SSL_KEY_PASSWORD": "canary-4711",
    "KAFSCALE_SSL_CLIENT_CA_FILE": "ca.crt",
    "KAFSCALE_SSL_CLIENT_AUTH": "required",
    "KAFSCALE_SSL_PRINCIPAL_MAPPING_RULES": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
}
NOTHING: dict[str, str] = {}
OLD_WAY = {"KAFSCALE_BROKER_ADDR": "127.0.0.1:1", "KAFSCALE_EXTERNAL_ADDR": "127.0.0.1:2"}


def values(environment: Mapping[str, str]) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in describe_broker(load_settings(environment), None)}


@pytest.mark.parametrize(
    ("environment", "listeners", "protocols"),
    [
        (NOTHING, "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT:PLAINTEXT"),
        (
            OLD_WAY,
            "PLAINTEXT://127.0.0.1:1,EXTERNAL://127.0.0.1:2",
            "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT",
        ),
        (TLS, "INSIDE://0.0.0.0:9092,OUTSIDE://127.0.0.1:9095", "INSIDE:SSL,OUTSIDE:PLAINTEXT"),
    ],
)
def test_listeners_are_shown_with_their_protocols(
    environment: Mapping[str, str], listeners: str, protocols: str
) -> None:
    found = values(environment)
    assert (found["listeners"], found["listener.security.protocol.map"]) == (listeners, protocols)


def test_tls_is_shown_without_its_secrets() -> None:
    found = values(TLS)
    assert found["ssl.client.auth"] == "required"
    assert found["ssl.enabled.protocols"] == "TLSv1.2,TLSv1.3"
    assert found["ssl.principal.mapping.rules"] == "RULE:^CN=(.*?),.*$/$1/L,DEFAULT"
    assert found["max.connections.per.ip"] == "2147483647"
    assert "canary-4711" not in str(describe_broker(load_settings(TLS), None))


@pytest.mark.parametrize("variable", ["KAFSCALE_LISTENERS", "KAFSCALE_BROKER_ADDR"])
def test_listeners_are_static_however_they_are_set(variable: str) -> None:
    text = "PLAINTEXT://127.0.0.1:1" if variable == "KAFSCALE_LISTENERS" else "127.0.0.1:1"
    entries = {entry.name: entry for entry in describe_broker(load_settings({variable: text}), None)}
    assert entries["listeners"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert variable in entries["listeners"].documentation


def test_advertised_listeners_are_those_registered() -> None:
    record = BrokerRecord(broker_id=0, host="", port=0).reached_at(
        {ListenerName("INSIDE"): Endpoint("a", 1), ListenerName("OUTSIDE"): Endpoint("::1", 2)}
    )
    found = {entry.name: entry.value for entry in describe_broker(load_settings(TLS), record)}
    assert found["advertised.listeners"] == "INSIDE://a:1,OUTSIDE://[::1]:2"


def test_sasl_is_shown_under_the_names_of_kafka() -> None:
    found = values(
        {
            "KAFSCALE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512,OAUTHBEARER",
            "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": "https://issuer.example.com/keys",
            "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": "kafka,kafscale",
            "KAFSCALE_CONNECTIONS_MAX_REAUTH_MS": "60000",
        }
    )
    assert {name: value for name, value in found.items() if name.startswith(("sasl.", "connection"))} == {
        "connection.failed.authentication.delay.ms": "100",
        "connections.max.idle.ms": "600000",
        "connections.max.reauth.ms": "60000",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.clock.skew.seconds": "30",
        "sasl.oauthbearer.expected.audience": "kafka,kafscale",
        "sasl.oauthbearer.expected.issuer": None,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
        "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example.com/keys",
        "sasl.oauthbearer.scope.claim.name": "scope",
        "sasl.oauthbearer.sub.claim.name": "sub",
        "sasl.server.max.receive.size": "65536",
    }
