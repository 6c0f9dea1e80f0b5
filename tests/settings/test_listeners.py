"""Lists of listeners: Kafka's rules, the settings of the two that there once were, plaintext that others reach."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import SettingError
from kafscale.protocol.listeners import ListenerName, SecurityProtocol
from kafscale.settings.broker import load_settings
from kafscale.settings.kinds import Address
from kafscale.settings.listener_kinds import MOST_LISTENERS, advertised_list, listener_list, protocol_map
from kafscale.settings.listener_list import ListenerSpec, check_open_listeners, is_loopback, listener_specs

TLS_FILES = {"KAFSCALE_SSL_CERTIFICATE_FILE": "tls.crt", "KAFSCALE_SSL_KEY_FILE": "tls.key"}


def specs(**environment: str) -> tuple[ListenerSpec, ...]:
    """The listeners of settings named without KAFSCALE_."""
    return listener_specs(load_settings({f"KAFSCALE_{name}": value for name, value in environment.items()}))


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(SettingError) as refused:
        load_settings(environment)
    message = str(refused.value)
    assert len(message.splitlines()) == 1
    return message


def test_without_a_list_there_is_one_plaintext_listener() -> None:
    (spec,) = specs()
    assert (spec.name, spec.protocol) == (ListenerName.PLAINTEXT, SecurityProtocol.PLAINTEXT)
    assert spec.address == Address("127.0.0.1", 9092)


def test_the_external_address_is_a_second_listener() -> None:
    _, external = specs(EXTERNAL_ADDR=":9094", EXTERNAL_HOST="k.example.com", EXTERNAL_PORT="443")
    assert (external.name, external.protocol) == (ListenerName.EXTERNAL, SecurityProtocol.PLAINTEXT)
    assert external.advertised(Address("0.0.0.0", 9094), "machine") == Address("k.example.com", 443)


def test_each_name_gets_its_protocol_from_the_map() -> None:
    found = listener_specs(
        load_settings(
            {
                "KAFSCALE_LISTENERS": "inside://:9092,OUTSIDE://[::]:9093",
                "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:SASL_PLAINTEXT,OUTSIDE:SSL,OTHER:SSL",
                **TLS_FILES,
            }
        )
    )
    assert [(spec.name, spec.protocol, spec.address) for spec in found] == [
        ("INSIDE", SecurityProtocol.SASL_PLAINTEXT, Address("0.0.0.0", 9092)),
        ("OUTSIDE", SecurityProtocol.SSL, Address("::", 9093)),
    ]


@pytest.mark.parametrize(
    ("listeners", "advertised", "bound", "expected"),
    [
        ("PLAINTEXT://k.example.com:0", None, Address("192.0.2.1", 41), Address("k.example.com", 41)),
        ("PLAINTEXT://:9092", None, Address("0.0.0.0", 9092), Address("machine", 9092)),
        ("PLAINTEXT://:9092", "PLAINTEXT://a:1", Address("0.0.0.0", 9092), Address("a", 1)),
    ],
)
def test_clients_are_given_the_advertised_address(
    listeners: str, advertised: str | None, bound: Address, expected: Address
) -> None:
    environment = {"LISTENERS": listeners} | ({"ADVERTISED_LISTENERS": advertised} if advertised else {})
    (spec,) = specs(**environment)
    assert spec.advertised(bound, "machine") == expected


def test_a_listener_left_out_of_the_advertised_is_not() -> None:
    one, other = specs(
        LISTENERS="PLAINTEXT://:9092,SASL_PLAINTEXT://:9095", ADVERTISED_LISTENERS="PLAINTEXT://a:1"
    )
    assert (one.is_advertised, other.is_advertised) == (True, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("PLAINTEXT://:9092,plaintext://:9095", "different name"),
        ("PLAINTEXT://:9092,SASL_PLAINTEXT://:9092", "different port"),
        ("PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.2:9092", "different port"),
        ("A://127.0.0.1:1,B://[::1]:1,C://[::2]:1", "different port"),
        ("PLAINTEXT://:9092,", "an entry is empty"),
        ("PLAINTEXT//:9092", "not NAME://host:port"),
        ("PLAINTEXT://localhost", "the port from 0"),
        ("://:9092", "no listener name"),
        ("-A://:9092", "no listener name"),
        ("A B://:9092", "no listener name"),
        (f"{'A' * 65}://:9092", "no listener name"),
        (",".join(f"L{port}://:{port}" for port in range(1, MOST_LISTENERS + 2)), "more than"),
    ],
)
def test_a_list_that_is_not_legal_is_refused(text: str, reason: str) -> None:
    message = refusal({"KAFSCALE_LISTENERS": text})
    assert message.startswith("KAFSCALE_LISTENERS=")
    assert reason in message


@pytest.mark.parametrize(
    "text", ["A://127.0.0.1:9092,B://[::1]:9092", "A://:0,B://:0", "A://a:1,B://b:2"], ids=str
)
def test_a_port_may_be_shared_by_ip_versions_or_be_free(text: str) -> None:
    found = listener_list().parse(text)
    assert found is not None
    assert [entry.name for entry in found] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A://0.0.0.0:1", "nothing that a client can connect to"),
        ("A://[::]:1", "nothing that a client can connect to"),
        ("A://a:0", "nothing that a client can connect to"),
        ("A://:1", "has no host"),
        ("A://a:1,a://b:2", "different name"),
    ],
)
def test_an_advertised_list_that_is_not_legal_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        advertised_list().parse(text)


def test_advertised_ports_may_be_the_same() -> None:
    found = advertised_list().parse("A://a:443,B://b:443")
    assert found is not None
    assert [entry.address.port for entry in found] == [443, 443]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A:TLS", "names no protocol"),
        ("A:SSL,a:SSL", "twice"),
        ("SSL", "names no protocol"),
        (":SSL", "name"),
    ],
)
def test_a_map_that_is_not_legal_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        protocol_map().parse(text)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"LISTENERS": "INSIDE://:1"}, "defines no security protocol for listener INSIDE"),
        (
            {"LISTENERS": "PLAINTEXT://:1", "BROKER_ADDR": "127.0.0.1:9092"},
            "KAFSCALE_LISTENERS and KAFSCALE_BROKER_ADDR both say where the broker listens",
        ),
        (
            {"LISTENERS": "PLAINTEXT://:1", "EXTERNAL_ADDR": ":2"},
            "KAFSCALE_LISTENERS and KAFSCALE_EXTERNAL_ADDR both say",
        ),
        ({"ADVERTISED_LISTENERS": "PLAINTEXT://a:1"}, "needs KAFSCALE_LISTENERS to be set"),
        (
            {"LISTENERS": "PLAINTEXT://:1", "ADVERTISED_LISTENERS": "SSL://a:1"},
            "equal to or a subset of those in KAFSCALE_LISTENERS, and SSL is not among PLAINTEXT",
        ),
        ({"LISTENERS": "SSL://:1"}, "needs KAFSCALE_SSL_CERTIFICATE_FILE to be set: SSL is SSL"),
        ({"LISTENERS": "PLAINTEXT://127.0.0.1:9093"}, "must differ from KAFSCALE_LISTENERS=127.0.0.1:9093"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(environment: dict[str, str], words: str) -> None:
    assert words in refusal({f"KAFSCALE_{name}": value for name, value in environment.items()})


def test_client_certificates_need_their_authorities() -> None:
    environment = {"KAFSCALE_LISTENERS": "SSL://:1", "KAFSCALE_SSL_CLIENT_AUTH": "required", **TLS_FILES}
    assert "needs KAFSCALE_SSL_CLIENT_CA_FILE" in refusal(environment)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("localhost.example.com", False),
    ],
)
def test_loopback_is_the_machine_itself(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("environment", "set_by"),
    [
        ({"KAFSCALE_BROKER_ADDR": ":9092"}, "KAFSCALE_BROKER_ADDR"),
        ({"KAFSCALE_EXTERNAL_ADDR": "10.0.0.1:9094"}, "KAFSCALE_EXTERNAL_ADDR"),
        ({"KAFSCALE_LISTENERS": "PLAINTEXT://kafka.example.com:9092"}, "KAFSCALE_LISTENERS"),
    ],
)
def test_plaintext_that_others_reach_must_be_allowed(environment: dict[str, str], set_by: str) -> None:
    with pytest.raises(SettingError, match=rf"{set_by}.*KAFSCALE_ALLOW_PLAINTEXT=true"):
        check_open_listeners(load_settings(environment))
    (warning,) = check_open_listeners(load_settings({**environment, "KAFSCALE_ALLOW_PLAINTEXT": "true"}))
    assert "User:ANONYMOUS" in warning


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"KAFSCALE_BROKER_ADDR": "localhost:9092"},
        {"KAFSCALE_LISTENERS": "SSL://:9092", **TLS_FILES},
        {"KAFSCALE_LISTENERS": "SASL_PLAINTEXT://:9092"},
        {"KAFSCALE_LISTENERS": "PLAINTEXT://[::1]:9092,SASL_SSL://:9095", **TLS_FILES},
    ],
    ids=str,
)
def test_listeners_that_keep_others_out_need_nothing(environment: dict[str, str]) -> None:
    assert check_open_listeners(load_settings(environment)) == []


NAMES = st.lists(st.from_regex(r"[A-Z0-9_]{1,8}", fullmatch=True), min_size=1, max_size=5, unique=True)


@given(names=NAMES, data=st.data())
def test_a_legal_list_reads_as_it_is_written(names: list[str], data: st.DataObject) -> None:
    ports = data.draw(st.lists(st.integers(1, 65535), min_size=len(names), max_size=len(names), unique=True))
    hosts = data.draw(
        st.lists(st.sampled_from(["a.b", "10.0.0.1", "[::1]"]), min_size=len(names), max_size=len(names))
    )
    text = ",".join(f"{name}://{host}:{port}" for name, host, port in zip(names, hosts, ports, strict=True))
    found = listener_list().parse(text)
    assert found is not None
    assert ",".join(map(str, found)) == text
    assert listener_list().parse(text.lower()) == found


@given(text=st.text(max_size=60))
def test_any_text_is_a_list_or_a_value_error(text: str) -> None:
    for kind in (listener_list(), advertised_list(), protocol_map()):
        with contextlib.suppress(ValueError):
            assert kind.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kafka.example.com:7", "host names are not resolved"),
        ("10.0.0.0/8:7", "names no address"),
        ("127.0.0.1", "names no address"),
        ("127.0.0.1:", "no number"),
        ("127.0.0.1:-1", "no number"),
        ("127.0.0.1:2147483648", "no number"),
        ("127.0.0.1:1,127.0.0.1:2", "stands there twice"),
        ("::1:1,0:0::1:2", "stands there twice"),
        ("127.0.0.1:1,", "an entry is empty"),
    ],
)
def test_limits_of_addresses_that_are_not_legal_are_refused(text: str, reason: str) -> None:
    assert reason in refusal({"KAFSCALE_MAX_CONNECTIONS_PER_IP_OVERRIDES": text})
