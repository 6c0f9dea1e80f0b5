"""A broker's questions to Kubernetes about its place, and its use of the answers."""

from typing import Any

import pytest

from kafscale.errors import SettingError
from kafscale.operator.pods.place import Place, Questions, Unknown, needs_node, place, placed, questions

LABEL = "topology.kubernetes.io/zone"
IN_POD = {"POD_NAMESPACE": "shop", "NODE_NAME": "node-1"}
RACK = IN_POD | {"RACK_LABEL": LABEL}
ADDRESS = IN_POD | {"EXTERNAL_SERVICE": "events-broker-0-external"}
AWAY = Unknown("the API server is away", is_answer=False)


def asked(environment: dict[str, str]) -> Questions:
    found = questions(environment)
    assert found is not None
    return found


def node(*addresses: tuple[str, str]) -> dict[str, Any]:
    told = [{"type": kind, "address": address} for kind, address in addresses]
    return {"metadata": {"name": "node-1", "labels": {}}, "status": {"addresses": told}}


def zoned(zone: str) -> dict[str, Any]:
    return {"metadata": {"name": "node-1", "labels": {LABEL: zone}}}


def node_port(number: int | None = 30_094) -> dict[str, Any]:
    port: dict[str, Any] = {"name": "external", "port": 9094}
    if number is not None:
        port["nodePort"] = number
    return {"spec": {"type": "NodePort", "ports": [port]}, "status": {"loadBalancer": {}}}


def load_balancer(*points: dict[str, str]) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "ports": [{"name": "external", "port": 9094, "nodePort": 30_001}]}
    return {"spec": spec, "status": {"loadBalancer": {"ingress": list(points)} if points else {}}}


def address(environment: dict[str, str], node: Any, service: Any) -> dict[str, str] | str:
    """The variables, or why there are none."""
    found = place(asked(environment), node, service)
    assert found.is_complete == (found.address_missing is None)
    return found.reason if found.address_missing else dict(found.variables)


@pytest.mark.parametrize("environment", [{}, IN_POD, {"RACK_LABEL": "", "EXTERNAL_SERVICE": ""}])
def test_nothing_is_asked_where_nothing_is_wanted(environment: dict[str, str]) -> None:
    assert questions(environment) is None


def test_what_is_set_is_not_asked_for() -> None:
    assert questions(RACK | {"KAFSCALE_RACK": "cellar"}) is None
    assert questions(ADDRESS | {"KAFSCALE_EXTERNAL_HOST": "a", "KAFSCALE_EXTERNAL_PORT": "1"}) is None
    only_port = asked(ADDRESS | {"KAFSCALE_EXTERNAL_HOST": "kafka-0.example.com"})
    assert (only_port.asks_host, only_port.asks_port) == (False, True)
    found = place(only_port, None, node_port(30_094))
    assert found == Place(variables={"KAFSCALE_EXTERNAL_PORT": "30094"})


@pytest.mark.parametrize("missing", sorted(IN_POD))
@pytest.mark.parametrize("wanted", [RACK, ADDRESS], ids=["rack", "address"])
def test_an_environment_that_does_not_say_where_it_is_is_refused(
    wanted: dict[str, str], missing: str
) -> None:
    with pytest.raises(SettingError, match=f"^{missing} must be set where (RACK_LABEL|EXTERNAL_SERVICE) is"):
        questions({name: value for name, value in wanted.items() if name != missing})


def test_the_zone_is_the_nodes_label() -> None:
    assert place(asked(RACK), zoned("eu-1b"), None) == Place(variables={"KAFSCALE_RACK": "eu-1b"})


@pytest.mark.parametrize("labels", [{}, {LABEL: ""}, {"region": "eu-1"}])
def test_a_node_without_the_label_is_an_answer(labels: dict[str, str]) -> None:
    found = place(asked(RACK), {"metadata": {"name": "node-1", "labels": labels}}, None)
    assert found.rack_missing == Unknown(
        f"node node-1 has no label {LABEL}, which names its zone", is_answer=True
    )
    assert not found.is_complete and not found.is_out_of_reach and not found.variables


def test_a_load_balancers_name_goes_before_its_address() -> None:
    assert address(ADDRESS, None, load_balancer({"ip": "192.0.2.7", "hostname": "lb.example.com"})) == {
        "KAFSCALE_EXTERNAL_HOST": "lb.example.com",
        "KAFSCALE_EXTERNAL_PORT": "9094",
    }
    assert address(ADDRESS, None, load_balancer({"ip": "192.0.2.7"}, {"ip": "192.0.2.8"})) == {
        "KAFSCALE_EXTERNAL_HOST": "192.0.2.7",
        "KAFSCALE_EXTERNAL_PORT": "9094",
    }


def test_a_load_balancer_that_is_not_there_yet_is_waited_for() -> None:
    told = address(ADDRESS, None, load_balancer())
    assert told == "service events-broker-0-external was given no address by its load balancer yet"


@pytest.mark.parametrize(
    ("addresses", "host"),
    [
        ([("Hostname", "n1"), ("InternalIP", "10.0.0.4"), ("ExternalIP", "192.0.2.1")], "192.0.2.1"),
        ([("InternalIP", "10.0.0.4"), ("ExternalDNS", "n1.example.com")], "n1.example.com"),
        ([("Hostname", "n1"), ("InternalIP", "10.0.0.4"), ("ExternalIP", "")], "10.0.0.4"),
    ],
)
def test_a_node_port_is_reached_at_the_nodes_address(addresses: list[tuple[str, str]], host: str) -> None:
    assert address(ADDRESS, node(*addresses), node_port()) == {
        "KAFSCALE_EXTERNAL_HOST": host,
        "KAFSCALE_EXTERNAL_PORT": "30094",
    }


@pytest.mark.parametrize(
    ("node_given", "service", "reason"),
    [
        (node(("Hostname", "n1")), node_port(), "node node-1 has no address"),
        (
            node(("InternalIP", "10.0.0.4")),
            node_port(None),
            "service events-broker-0-external was given no node port yet",
        ),
        (
            None,
            {"spec": {"type": "ClusterIP", "ports": [{"port": 9094}]}},
            "service events-broker-0-external is of type ClusterIP: it must be LoadBalancer or NodePort",
        ),
        (AWAY, node_port(), "the API server is away"),
        (None, AWAY, "the API server is away"),
    ],
)
def test_what_is_missing_is_said(node_given: Any, service: Any, reason: str) -> None:
    assert address(ADDRESS, node_given, service) == reason


def test_the_node_is_read_only_where_it_matters() -> None:
    assert needs_node(asked(RACK), None)
    assert needs_node(asked(ADDRESS), node_port())
    assert not needs_node(asked(ADDRESS), load_balancer())
    assert not needs_node(asked(ADDRESS), AWAY)
    assert not needs_node(asked(ADDRESS | {"KAFSCALE_EXTERNAL_HOST": "kafka-0.example.com"}), node_port())


def test_both_questions_have_answers_of_their_own() -> None:
    both = asked(RACK | ADDRESS)
    found = place(both, zoned("eu-1a"), load_balancer())
    assert found.variables == {"KAFSCALE_RACK": "eu-1a"}
    assert found.rack_missing is None and found.address_missing is not None
    away = place(both, AWAY, AWAY)
    assert away.is_out_of_reach
    assert away.reason == "the API server is away"


def test_named_listeners_get_the_external_address() -> None:
    listeners = {"KAFSCALE_ADVERTISED_LISTENERS": "INTERNAL://a:9092"}
    found = {"KAFSCALE_RACK": "a", "KAFSCALE_EXTERNAL_HOST": "fd00::1", "KAFSCALE_EXTERNAL_PORT": "30094"}
    assert placed(listeners, found) == {
        "KAFSCALE_RACK": "a",
        "KAFSCALE_ADVERTISED_LISTENERS": "INTERNAL://a:9092,EXTERNAL://[fd00::1]:30094",
    }
    given = listeners | {"EXTERNAL_LISTENER_HOST": "k-0.example.com"}
    assert placed(given, {"KAFSCALE_EXTERNAL_PORT": "30094"})["KAFSCALE_ADVERTISED_LISTENERS"] == (
        "INTERNAL://a:9092,EXTERNAL://k-0.example.com:30094"
    )
    assert placed(listeners, {"KAFSCALE_RACK": "a"}) == listeners | {"KAFSCALE_RACK": "a"}
    assert placed({"A": "1"}, found) == {"A": "1", **found}


def test_given_host_of_a_listener_is_not_asked_for() -> None:
    only_port = asked(ADDRESS | {"EXTERNAL_LISTENER_HOST": "k-0.example.com"})
    assert (only_port.asks_host, only_port.asks_port) == (False, True)
