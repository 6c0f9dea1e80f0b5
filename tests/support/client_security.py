"""One `Access` in the settings of each client."""

import ssl
from pathlib import Path
from typing import Any

from tests.support.oauth_server import CLIENT_SECRET
from tests.support.security_plan import OAUTH, PLAIN, Access

_MODULES = "org.apache.kafka.common.security"
_OAUTH_LOGIN = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"


def java_config(access: Access) -> dict[str, str]:
    """For Java clients and tools. A token comes from the token endpoint, with the user as client id."""
    config = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.is_tls and access.ca:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": access.ca}
    if access.cert_and_key:
        config |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": access.cert_and_key}
    if access.mechanism:
        config |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": _jaas(access)}
        if access.mechanism == OAUTH and access.token_url:
            config |= {
                "sasl.login.callback.handler.class": _OAUTH_HANDLER,
                "sasl.oauthbearer.token.endpoint.url": access.token_url,
            }
    return config


def _jaas(access: Access) -> str:
    if access.mechanism == OAUTH:
        if not access.token_url:
            return f'{_OAUTH_LOGIN} required unsecuredLoginStringClaim_sub="{access.user}";'
        return f'{_OAUTH_LOGIN} required clientId="{access.user}" clientSecret="{CLIENT_SECRET}";'
    kind = "plain.Plain" if access.mechanism == PLAIN else "scram.Scram"
    return f'{_MODULES}.{kind}LoginModule required username="{access.user}" password="{access.password}";'


def java_options(*token_urls: str) -> tuple[str, ...]:
    """Options of a JVM whose clients get tokens there."""
    return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(token_urls)}",)


def write_tool_config(access: Access, path: Path) -> Path:
    """The file that Kafka's tools take by `--command-config`."""
    rows = {name: value for name, value in java_config(access).items() if name != "bootstrap.servers"}
    path.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
    path.chmod(0o600)
    return path


def librdkafka_config(access: Access) -> dict[str, Any]:
    """For confluent-kafka and (`-X`) kcat, but for a token: see `librdkafka_oauth`."""
    config: dict[str, Any] = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.ca:
        config["ssl.ca.location"] = access.ca
    if access.cert:
        config |= {"ssl.certificate.location": access.cert, "ssl.key.location": access.key}
    if access.mechanism:
        config["sasl.mechanism"] = access.mechanism
        if access.mechanism != OAUTH:
            config |= {"sasl.username": access.user, "sasl.password": access.password}
    return config


def librdkafka_oidc(access: Access) -> dict[str, str]:
    """A token from the token endpoint."""
    assert access.token_url
    return {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": access.user,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        "sasl.oauthbearer.token.endpoint.url": access.token_url,
    }


def ssl_context(access: Access) -> ssl.SSLContext:
    """For clients that take Python's own."""
    context = ssl.create_default_context(cafile=access.ca)
    if access.cert:
        context.load_cert_chain(access.cert, access.key)
    return context
