"""The brokers' listeners: addresses, certificates, and who may connect, as variables, ports and volumes."""

from typing import Any, Final

from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.manifests import names
from kafscale.operator.pods import place
from kafscale.protocol.listeners import SecurityProtocol

PLAINTEXT: Final = "PLAINTEXT"
INTERNAL: Final = "INTERNAL"
EXTERNAL: Final = place.EXTERNAL_LISTENER
"""Names of the listeners for clients within the Kubernetes cluster and outside; `FurtherListener` has others."""

CERTIFICATE_FOLDER: Final = "/etc/kafscale/tls"
CLIENT_CA_FOLDER: Final = "/etc/kafscale/client-ca"
METRICS_TOKEN_FOLDER: Final = "/etc/kafscale/metrics-token"
DEFAULT_MECHANISMS: Final = "SCRAM-SHA-512,SCRAM-SHA-256"

LISTENERS: Final = "KAFSCALE_LISTENERS"
ALLOW_PLAINTEXT: Final = "KAFSCALE_ALLOW_PLAINTEXT"
OLD_ADDRESS: Final = "KAFSCALE_BROKER_ADDR"
"""Of brokers of before there was a choice of listeners; they serve plaintext."""

ADVERTISED: Final = place.ADVERTISED
_MECHANISMS: Final = "KAFSCALE_SASL_ENABLED_MECHANISMS"


def environment(cluster: ClusterSpec) -> dict[str, str]:
    """The variables that all brokers share."""
    found = _listeners(cluster)
    if cluster.security.metrics_token_secret is not None:
        found["KAFSCALE_METRICS_TOKEN_FILE"] = f"{METRICS_TOKEN_FOLDER}/token"
    return found


def _listeners(cluster: ClusterSpec) -> dict[str, str]:
    listeners = _ports_by_name(cluster)
    found = {
        LISTENERS: ",".join(f"{name}://:{port}" for name, (port, _) in listeners.items()),
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": ",".join(
            f"{name}:{protocol}" for name, (_, protocol) in listeners.items()
        ),
    }
    if cluster.security.takes_plaintext:
        found[ALLOW_PLAINTEXT] = "true"
    return found | (_authentication(cluster) if cluster.security.has_admin else {})


def _ports_by_name(cluster: ClusterSpec) -> dict[str, tuple[int, SecurityProtocol]]:
    """Port and protocol of each listener. The names of plaintext ones are those of brokers without a list of them."""
    external, security = cluster.brokers.external, cluster.security
    found = {_internal(cluster): (names.KAFKA_PORT, security.protocol)}
    if external is not None:
        found[EXTERNAL] = (external.port, security.protocol)
    return found | {each.name: (each.port, each.protocol) for each in security.further}


def _internal(cluster: ClusterSpec) -> str:
    return PLAINTEXT if cluster.security.protocol is SecurityProtocol.PLAINTEXT else INTERNAL


def _authentication(cluster: ClusterSpec) -> dict[str, str]:
    security = cluster.security
    found = {
        "KAFSCALE_AUTHORIZER": "acl" if security.has_authorizer else "none",
        "KAFSCALE_SUPER_USERS": ";".join([security.admin_principal(cluster.name), *security.super_users]),
    }
    if security.uses_sasl and _MECHANISMS not in cluster.environment:
        found[_MECHANISMS] = DEFAULT_MECHANISMS
    if cluster.security.uses_tls:
        found["KAFSCALE_SSL_CERTIFICATE_FILE"] = f"{CERTIFICATE_FOLDER}/tls.crt"
        found["KAFSCALE_SSL_KEY_FILE"] = f"{CERTIFICATE_FOLDER}/tls.key"
    if security.takes_certificates:
        found["KAFSCALE_SSL_CLIENT_CA_FILE"] = f"{CLIENT_CA_FOLDER}/ca.crt"
        found["KAFSCALE_SSL_CLIENT_AUTH"] = "required"
    return found


def variables(cluster: ClusterSpec, *, asks_address: bool) -> list[dict[str, Any]]:
    """The variables that differ between brokers. `asks_address`: `kafscale pod` adds the external address."""
    peers = names.in_namespace(names.peers(cluster.name), cluster.namespace)
    external, security = cluster.brokers.external, cluster.security
    template = None if external is None else external.host_template
    host = None if template is None else template.replace("{id}", "$(KAFSCALE_BROKER_ID)")
    advertised = [f"{_internal(cluster)}://$(POD_NAME).{peers}:{names.KAFKA_PORT}"]
    advertised += [f"{each.name}://$(POD_NAME).{peers}:{each.port}" for each in security.further]
    if external is not None and host is not None and not asks_address:
        advertised.append(f"{EXTERNAL}://{host}:{external.port}")
    found = [{"name": ADVERTISED, "value": ",".join(advertised)}]
    if host is not None and asks_address:
        found.append({"name": place.LISTENER_HOST, "value": host})
    return found


def ports(cluster: ClusterSpec) -> list[dict[str, Any]]:
    """The container's ports for clients."""
    found: list[dict[str, Any]] = [{"name": "kafka", "containerPort": names.KAFKA_PORT}]
    if cluster.brokers.external is not None:
        found.append({"name": "external", "containerPort": cluster.brokers.external.port})
    return found + [{"name": each.port_name, "containerPort": each.port} for each in cluster.security.further]


def volumes(cluster: ClusterSpec) -> list[tuple[str, str, str]]:
    """Name, Secret and folder of each volume with certificates, and with the metrics' token."""
    found = []
    if cluster.security.metrics_token_secret is not None:
        found.append(("metrics-token", cluster.security.metrics_token_secret, METRICS_TOKEN_FOLDER))
    if cluster.security.uses_tls:
        secret = cluster.security.certificate_secret or names.broker_certificate(cluster.name)
        found.append(("tls", secret, CERTIFICATE_FOLDER))
    if cluster.security.takes_certificates:
        found.append(("client-ca", names.client_ca(cluster.name), CLIENT_CA_FOLDER))
    return found
