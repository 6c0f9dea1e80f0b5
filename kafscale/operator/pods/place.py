"""Questions of a broker in a pod to Kubernetes about its place, and the answers' meaning. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafscale.errors import SettingError

Manifest = Mapping[str, Any]

RACK_LABEL = "RACK_LABEL"
EXTERNAL_SERVICE = "EXTERNAL_SERVICE"
POD_NAMESPACE = "POD_NAMESPACE"
NODE_NAME = "NODE_NAME"

RACK = "KAFSCALE_RACK"
EXTERNAL_HOST = "KAFSCALE_EXTERNAL_HOST"
EXTERNAL_PORT = "KAFSCALE_EXTERNAL_PORT"

# The same for a broker with named listeners: the operator gives the host, and all other addresses.
LISTENER_HOST = "EXTERNAL_LISTENER_HOST"
ADVERTISED = "KAFSCALE_ADVERTISED_LISTENERS"
EXTERNAL_LISTENER = "EXTERNAL"

_NODE_PORT = "NodePort"
_LOAD_BALANCER = "LoadBalancer"
# For clients outside the Kubernetes cluster; a node without such an address serves its own network.
_NODE_ADDRESSES = ("ExternalIP", "ExternalDNS", "InternalIP")


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """The questions. `rack_label`: of the node; `service`: the broker's own for clients outside."""

    namespace: str
    node: str
    rack_label: str | None
    service: str | None
    asks_host: bool
    asks_port: bool


@dataclass(frozen=True, slots=True)
class Unknown:
    """An object that could not be read, and why. `is_answer`: Kubernetes answered, rather than being unreachable."""

    reason: str
    is_answer: bool


Answer = Manifest | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The known variables of the broker's environment, and why others are missing."""

    variables: Mapping[str, str]
    rack_missing: Unknown | None = None
    address_missing: Unknown | None = None

    @property
    def is_complete(self) -> bool:
        return self.rack_missing is None and self.address_missing is None

    @property
    def is_out_of_reach(self) -> bool:
        """True if something is missing because Kubernetes did not answer."""
        missing = (self.rack_missing, self.address_missing)
        return any(one is not None and not one.is_answer for one in missing)

    @property
    def reason(self) -> str:
        """Why it is not complete, in one line."""
        reasons = [one.reason for one in (self.rack_missing, self.address_missing) if one is not None]
        return "; ".join(dict.fromkeys(reasons))


def questions(environment: Mapping[str, str]) -> Questions | None:
    """Derives the questions from the pod's environment; None if there are none. Set variables are not asked for.

    Raises `SettingError` if the environment is incomplete.
    """
    rack_label = environment.get(RACK_LABEL) or None
    service = environment.get(EXTERNAL_SERVICE) or None
    if RACK in environment:
        rack_label = None
    asks_host = EXTERNAL_HOST not in environment and LISTENER_HOST not in environment
    asks_port = EXTERNAL_PORT not in environment
    if not (asks_host or asks_port):
        service = None
    if rack_label is None and service is None:
        return None
    why = RACK_LABEL if rack_label is not None else EXTERNAL_SERVICE
    for variable in (POD_NAMESPACE, NODE_NAME):
        if not environment.get(variable):
            raise SettingError(f"{variable} must be set where {why} is: Kubernetes is asked by that name")
    return Questions(
        namespace=environment[POD_NAMESPACE],
        node=environment[NODE_NAME],
        rack_label=rack_label,
        service=service,
        asks_host=asks_host,
        asks_port=asks_port,
    )


def placed(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The broker's environment with what was found out about its place."""
    found = {**environment, **variables}
    if ADVERTISED not in environment:
        return found
    port, host = found.pop(EXTERNAL_PORT, None), found.pop(EXTERNAL_HOST, environment.get(LISTENER_HOST))
    if host is not None and port is not None:
        where = f"[{host}]" if ":" in host else host
        found[ADVERTISED] += f",{EXTERNAL_LISTENER}://{where}:{port}"
    return found


def needs_node(asked: Questions, service: Answer | None) -> bool:
    """True if the node is needed, too."""
    if asked.rack_label is not None:
        return True
    return asked.asks_host and isinstance(service, Mapping) and _type_of(service) == _NODE_PORT


def place(asked: Questions, node: Answer | None, service: Answer | None) -> Place:
    """Evaluates the answers. `node` and `service` are None if they were not asked for."""
    variables: dict[str, str] = {}
    rack_missing = address_missing = None
    if asked.rack_label is not None:
        rack = _rack(asked.rack_label, asked.node, node)
        if isinstance(rack, Unknown):
            rack_missing = rack
        else:
            variables[RACK] = rack
    if asked.service is not None:
        address = _address(asked, asked.service, node, service)
        if isinstance(address, Unknown):
            address_missing = address
        else:
            variables |= address
    return Place(variables=variables, rack_missing=rack_missing, address_missing=address_missing)


def _rack(label: str, name: str, node: Answer | None) -> str | Unknown:
    if node is None or isinstance(node, Unknown):
        return node or Unknown(f"node {name} was not asked for", is_answer=False)
    value = node["metadata"].get("labels", {}).get(label)
    if not value:
        return Unknown(f"node {name} has no label {label}, which names its zone", is_answer=True)
    return str(value)


def _address(
    asked: Questions, name: str, node: Answer | None, service: Answer | None
) -> dict[str, str] | Unknown:
    """The variables of the external address that are asked for."""
    if service is None or isinstance(service, Unknown):
        return service or Unknown(f"service {name} was not asked for", is_answer=False)
    found: dict[str, str] = {}
    if asked.asks_host:
        host = _host(asked, name, node, service)
        if isinstance(host, Unknown):
            return host
        found[EXTERNAL_HOST] = host
    if asked.asks_port:
        port = _port(name, service)
        if isinstance(port, Unknown):
            return port
        found[EXTERNAL_PORT] = str(port)
    return found


def _host(asked: Questions, name: str, node: Answer | None, service: Manifest) -> str | Unknown:
    match _type_of(service):
        case "LoadBalancer":
            points = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
            # A host name survives changes of its addresses.
            host = points[0].get("hostname") or points[0].get("ip")
            if not host:
                return Unknown(
                    f"service {name} was given no address by its load balancer yet", is_answer=True
                )
            return str(host)
        case "NodePort":
            return _node_host(asked.node, node)
        case other:
            return Unknown(
                f"service {name} is of type {other}: it must be {_LOAD_BALANCER} or {_NODE_PORT}",
                is_answer=True,
            )


def _node_host(name: str, node: Answer | None) -> str | Unknown:
    if node is None or isinstance(node, Unknown):
        return node or Unknown(f"node {name} was not asked for", is_answer=False)
    addresses = node.get("status", {}).get("addresses") or []
    for wanted in _NODE_ADDRESSES:
        for each in addresses:
            if each["type"] == wanted and each.get("address"):
                return str(each["address"])
    return Unknown(f"node {name} has no address", is_answer=True)


def _port(name: str, service: Manifest) -> int | Unknown:
    """The first port's: the service has one."""
    port = service["spec"]["ports"][0]
    number = port.get("nodePort") if _type_of(service) == _NODE_PORT else port["port"]
    return int(number) if number else Unknown(f"service {name} was given no node port yet", is_answer=True)


def _type_of(service: Manifest) -> str:
    return str(service["spec"].get("type", "ClusterIP"))
