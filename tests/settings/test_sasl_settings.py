"""Settings of SASL that are not legal, alone or together."""

import pytest

from kafscale.errors import SettingError
from kafscale.settings.broker import load_settings

MECHANISMS, KEYS = "KAFSCALE_SASL_ENABLED_MECHANISMS", "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (MECHANISMS, ""),
        (MECHANISMS, "GSSAPI"),
        (MECHANISMS, "PLAIN,,SCRAM-SHA-256"),
        (KEYS, "issuer.example/keys"),
        (KEYS, "ftp://issuer.example/keys"),
        (KEYS, "file://keys.json"),
        (KEYS, "https:///keys"),
        (KEYS, "https://issuer.example/a b"),
        ("KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE", "a,,b"),
        ("KAFSCALE_SASL_OAUTHBEARER_SUB_CLAIM_NAME", ""),
        ("KAFSCALE_SASL_SERVER_MAX_RECEIVE_SIZE", "2MiB"),
        ("KAFSCALE_SASL_AUTHENTICATION_TIMEOUT_MS", "0"),
    ],
)
def test_value_that_is_not_legal_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(SettingError, match=variable):
        load_settings({variable: text})


def test_tokens_without_keys_are_refused() -> None:
    with pytest.raises(SettingError, match=KEYS):
        load_settings({MECHANISMS: "PLAIN,OAUTHBEARER"})
    settings = load_settings({MECHANISMS: "PLAIN,OAUTHBEARER", KEYS: "file:///keys.json"})
    assert settings.sasl_oauthbearer_jwks_endpoint_url == "file:///keys.json"
