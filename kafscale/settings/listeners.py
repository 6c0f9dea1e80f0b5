"""The settings of who the broker is, and of the addresses that it serves."""

from dataclasses import dataclass

from kafscale.settings.kinds import (
    Address,
    address,
    advertised_host,
    advertised_port,
    boolean,
    integer,
    optional_address,
    text,
)
from kafscale.settings.listener_kinds import (
    NamedAddress,
    ProtocolMap,
    advertised_list,
    listener_list,
    protocol_map,
)
from kafscale.settings.rows import INT32_MAX, derived, setting


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    """The broker's id and addresses; a part of `Settings`."""

    broker_id: int = setting(
        "KAFSCALE_BROKER_ID",
        integer(0, INT32_MAX),
        "0",
        "The broker's id in the cluster, as clients see it.",
    )
    listeners: tuple[NamedAddress, ...] | None = derived(
        "KAFSCALE_LISTENERS",
        listener_list(),
        "PLAINTEXT at KAFSCALE_BROKER_ADDR, and EXTERNAL at KAFSCALE_EXTERNAL_ADDR if that is set",
        "Where the broker listens for Kafka clients, as Kafka's `listeners`, such as "
        "`SASL_SSL://:9092,PLAINTEXT://127.0.0.1:9095`. Takes the place of KAFSCALE_BROKER_* and "
        "KAFSCALE_EXTERNAL_*.",
    )
    advertised_listeners: tuple[NamedAddress, ...] | None = derived(
        "KAFSCALE_ADVERTISED_LISTENERS",
        advertised_list(),
        "where it listens; the machine's host name where that is a wildcard",
        "Where clients connect, as Kafka's `advertised.listeners`. A listener that is left out is not advertised: "
        "its clients find no brokers.",
    )
    listener_security_protocol_map: ProtocolMap = setting(
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP",
        protocol_map(),
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each name in KAFSCALE_LISTENERS, as Kafka's `listener.security.protocol.map`.",
    )
    allow_plaintext: bool = setting(
        "KAFSCALE_ALLOW_PLAINTEXT",
        boolean(),
        "false",
        "Whether a listener with PLAINTEXT may be on an address that other machines can reach. Everyone who "
        "reaches it may do everything that `User:ANONYMOUS` may.",
    )
    broker_addr: Address = setting(
        "KAFSCALE_BROKER_ADDR",
        address(),
        "127.0.0.1:9092",
        "Where the broker listens for Kafka clients.",
    )
    broker_host: str | None = derived(
        "KAFSCALE_BROKER_HOST",
        advertised_host(),
        "the listen host; the machine's host name where that is a wildcard",
        "The host that clients connect to.",
    )
    broker_port: int | None = derived(
        "KAFSCALE_BROKER_PORT",
        advertised_port(),
        "the listen port",
        "The port that clients connect to.",
    )
    external_addr: Address | None = derived(
        "KAFSCALE_EXTERNAL_ADDR",
        optional_address(),
        "none",
        "A second address to listen on, for clients that reach the brokers by other names than those within "
        "the network: they are given the external host and port of every broker (Kafka's listeners).",
    )
    external_host: str | None = derived(
        "KAFSCALE_EXTERNAL_HOST",
        advertised_host(),
        "the external listen host; the machine's host name where that is a wildcard",
        "The host that clients of the external address connect to.",
    )
    external_port: int | None = derived(
        "KAFSCALE_EXTERNAL_PORT",
        advertised_port(),
        "the external listen port",
        "The port that clients of the external address connect to.",
    )
    metrics_addr: Address = setting(
        "KAFSCALE_METRICS_ADDR",
        address(),
        "127.0.0.1:9093",
        "Where `/metrics`, `/healthz`, `/readyz` and the page for people are served over HTTP.",
    )
    rack: str | None = derived(
        "KAFSCALE_RACK",
        text(249),
        "none",
        "The zone that the broker runs in; a consumer whose `client.rack` is the same reads from it.",
    )
