"""Legal values of the settings of listeners and TLS, different from the defaults, and what they need."""

import re
from pathlib import Path
from typing import Final

from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.settings.kinds import Address
from kafscale.settings.listener_kinds import AddressLimits, ClientAuth, NamedAddress, ProtocolMap, TlsVersion
from kafscale.settings.principal_mapping import MappingRule

LISTENER_LEGAL: Final[dict[str, tuple[str, object]]] = {
    "KAFSCALE_LISTENERS": (
        "plaintext://[::1]:19092, SSL://:19093",
        (
            NamedAddress(ListenerName("PLAINTEXT"), Address("::1", 19092)),
            NamedAddress(ListenerName("SSL"), Address("0.0.0.0", 19093)),
        ),
    ),
    "KAFSCALE_ADVERTISED_LISTENERS": (
        "SSL://kafka-0.example.com:443",
        (NamedAddress(ListenerName("SSL"), Address("kafka-0.example.com", 443)),),
    ),
    "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": (
        "inside:PLAINTEXT,OUTSIDE:sasl_ssl",
        ProtocolMap(
            (
                (ListenerName("INSIDE"), SecurityProtocol.PLAINTEXT),
                (ListenerName("OUTSIDE"), SecurityProtocol.SASL_SSL),
            )
        ),
    ),
    "KAFSCALE_ALLOW_PLAINTEXT": ("TRUE", True),
    "KAFSCALE_MAX_CONNECTIONS_PER_IP": ("7", 7),
    "KAFSCALE_MAX_CONNECTIONS_PER_IP_OVERRIDES": (
        "127.0.0.1:200, 2001:DB8:0::1:0",
        AddressLimits((("127.0.0.1", 200), ("2001:db8::1", 0))),
    ),
    "KAFSCALE_SSL_CERTIFICATE_FILE": ("tls/tls.crt", Path("tls/tls.crt")),
    "KAFSCALE_SSL_KEY_FILE": ("tls/tls.key", Path("tls/tls.key")),
    "KAFSCALE_SSL_KEY_PASSWORD": ("the key's", "the key's"),
    "KAFSCALE_SSL_CLIENT_CA_FILE": ("/tls/ca.crt", Path("/tls/ca.crt")),
    "KAFSCALE_SSL_CLIENT_AUTH": ("Required", ClientAuth.REQUIRED),
    "KAFSCALE_SSL_ENABLED_PROTOCOLS": ("TLSv1.3", (TlsVersion.V1_3,)),
    "KAFSCALE_SSL_PRINCIPAL_MAPPING_RULES": (
        "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
        (MappingRule(re.compile("^CN=(.*?),.*$", re.ASCII), "$1", "L"), MappingRule()),
    ),
    "KAFSCALE_SSL_HANDSHAKE_TIMEOUT_MS": ("100", 100),
}

LISTENER_NEEDED: Final[dict[str, list[str]]] = {
    "KAFSCALE_LISTENERS": ["KAFSCALE_SSL_CERTIFICATE_FILE", "KAFSCALE_SSL_KEY_FILE"],
    "KAFSCALE_ADVERTISED_LISTENERS": [
        "KAFSCALE_LISTENERS",
        "KAFSCALE_SSL_CERTIFICATE_FILE",
        "KAFSCALE_SSL_KEY_FILE",
    ],
    "KAFSCALE_SSL_CERTIFICATE_FILE": ["KAFSCALE_SSL_KEY_FILE"],
    "KAFSCALE_SSL_KEY_FILE": ["KAFSCALE_SSL_CERTIFICATE_FILE"],
    "KAFSCALE_SSL_KEY_PASSWORD": ["KAFSCALE_SSL_KEY_FILE", "KAFSCALE_SSL_CERTIFICATE_FILE"],
}
