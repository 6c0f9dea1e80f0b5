"""The broker's listeners, from the list of all of them or from the settings of the two that there once were."""

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from kafscale.errors import SettingError
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.settings.kinds import Address
from kafscale.settings.listener_kinds import ClientAuth, NamedAddress
from kafscale.settings.listeners import ListenerSettings
from kafscale.settings.tls import TlsSettings

_LISTENERS: Final = "KAFSCALE_LISTENERS"
_ADVERTISED: Final = "KAFSCALE_ADVERTISED_LISTENERS"
_MAP: Final = "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"
_ALLOW: Final = "KAFSCALE_ALLOW_PLAINTEXT"
_OLD_WAY: Final = {
    "broker_addr": "KAFSCALE_BROKER_ADDR",
    "broker_host": "KAFSCALE_BROKER_HOST",
    "broker_port": "KAFSCALE_BROKER_PORT",
    "external_addr": "KAFSCALE_EXTERNAL_ADDR",
    "external_host": "KAFSCALE_EXTERNAL_HOST",
    "external_port": "KAFSCALE_EXTERNAL_PORT",
}


@dataclass(frozen=True, kw_only=True)
class ListeningSettings(ListenerSettings, TlsSettings):
    """The tables that listeners are made of.

    `named`: the fields that the environment names, be it with their default.
    """

    named: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSpec:
    """One listener. `host`, `port`: advertised, None where they follow from the address that it listens on.

    `set_by`: the variable that chooses another address.
    """

    name: ListenerName
    protocol: SecurityProtocol
    address: Address
    host: str | None = None
    port: int | None = None
    is_advertised: bool = True
    set_by: str = _LISTENERS

    def advertised(self, bound: Address, host_name: str) -> Address:
        """Where clients connect, for a listener bound to `bound`; `host_name`: the machine's, for a wildcard."""
        host = self.host or (host_name if bound.is_wildcard else bound.host)
        return Address(host, self.port or bound.port)

    @property
    def is_open(self) -> bool:
        """True if other machines can reach it, and it neither encrypts nor authenticates."""
        return self.protocol is SecurityProtocol.PLAINTEXT and not is_loopback(self.address.host)


def listener_specs(settings: ListeningSettings) -> tuple[ListenerSpec, ...]:
    """The listeners, in their order. Raises `SettingError` for what is not legal together."""
    if settings.listeners is None:
        if settings.advertised_listeners is not None:
            raise SettingError(f"{_ADVERTISED} needs {_LISTENERS} to be set: it says where those are reached")
        return _old_way(settings)
    for name, variable in _OLD_WAY.items():
        if name in settings.named:
            raise SettingError(
                f"{_LISTENERS} and {variable} both say where the broker listens: set only one of them"
            )
    advertised = _advertised(settings, settings.listeners)
    specs = tuple(_spec(settings, entry, advertised) for entry in settings.listeners)
    _check_tls(settings, specs)
    return specs


def check_open_listeners(settings: ListeningSettings) -> list[str]:
    """One warning for each listener that lets everyone do everything. Raises `SettingError` if that is not allowed.

    Apart from `listener_specs`, because commands that start no broker take the broker's settings, too.
    """
    warnings = []
    for spec in listener_specs(settings):
        if not spec.is_open:
            continue
        risk = (
            f"listener {spec.name} at {spec.address} is PLAINTEXT on an address that other machines can reach"
        )
        if not settings.allow_plaintext:
            raise SettingError(
                f"{risk}: use SSL or SASL_SSL in {_LISTENERS}, a loopback address in {spec.set_by}, or set "
                f"{_ALLOW}=true if the network lets in only who may do everything"
            )
        warnings.append(f"{risk}: everyone who reaches it is User:ANONYMOUS ({_ALLOW}=true)")
    return warnings


def is_loopback(host: str) -> bool:
    """True for `localhost` and addresses of the machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def _old_way(settings: ListenerSettings) -> tuple[ListenerSpec, ...]:
    plaintext = ListenerSpec(
        name=ListenerName.PLAINTEXT,
        protocol=SecurityProtocol.PLAINTEXT,
        address=settings.broker_addr,
        host=settings.broker_host,
        port=settings.broker_port,
        set_by=_OLD_WAY["broker_addr"],
    )
    if settings.external_addr is None:
        return (plaintext,)
    external = ListenerSpec(
        name=ListenerName.EXTERNAL,
        protocol=SecurityProtocol.PLAINTEXT,
        address=settings.external_addr,
        host=settings.external_host,
        port=settings.external_port,
        set_by=_OLD_WAY["external_addr"],
    )
    return plaintext, external


def _advertised(
    settings: ListenerSettings, listeners: tuple[NamedAddress, ...]
) -> dict[ListenerName, Address] | None:
    if settings.advertised_listeners is None:
        return None
    names = {entry.name for entry in listeners}
    for entry in settings.advertised_listeners:
        if entry.name not in names:
            raise SettingError(
                f"{_ADVERTISED} is not legal: its names must be equal to or a subset of those in {_LISTENERS}, "
                f"and {entry.name} is not among {', '.join(sorted(names))}"
            )
    return {entry.name: entry.address for entry in settings.advertised_listeners}


def _spec(
    settings: ListenerSettings, entry: NamedAddress, advertised: dict[ListenerName, Address] | None
) -> ListenerSpec:
    protocol = settings.listener_security_protocol_map.of(entry.name)
    if protocol is None:
        raise SettingError(f"{_MAP} defines no security protocol for listener {entry.name} of {_LISTENERS}")
    given = None if advertised is None else advertised.get(entry.name)
    own_host = None if entry.address.is_wildcard else entry.address.host
    return ListenerSpec(
        name=entry.name,
        protocol=protocol,
        address=entry.address,
        host=own_host if given is None else given.host,
        port=None if given is None else given.port,
        is_advertised=advertised is None or given is not None,
    )


def _check_tls(settings: TlsSettings, specs: tuple[ListenerSpec, ...]) -> None:
    encrypted = next((spec for spec in specs if spec.protocol.is_tls), None)
    if encrypted is None:
        return
    for value, variable in (
        (settings.ssl_certificate_file, "KAFSCALE_SSL_CERTIFICATE_FILE"),
        (settings.ssl_key_file, "KAFSCALE_SSL_KEY_FILE"),
    ):
        if value is None:
            raise SettingError(
                f"{_LISTENERS} needs {variable} to be set: {encrypted.name} is {encrypted.protocol}"
            )
    if settings.ssl_client_auth is not ClientAuth.NONE and settings.ssl_client_ca_file is None:
        raise SettingError(
            f"KAFSCALE_SSL_CLIENT_AUTH={settings.ssl_client_auth} needs KAFSCALE_SSL_CLIENT_CA_FILE to be set: "
            "certificates are checked by it"
        )
