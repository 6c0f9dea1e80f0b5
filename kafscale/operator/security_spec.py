"""The section `security` of a KafscaleCluster's specification as values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafscale.operator.manifests import names
from kafscale.operator.schema.security_schema import MUTUAL_TLS_PORT, TRANSITION_PORT
from kafscale.protocol.listeners import SecurityProtocol

MUTUAL: Final = "MUTUAL"
TRANSITION: Final = "TRANSITION"


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherListener:
    """A listener within the Kubernetes cluster besides the first one.

    `section`: of the specification; `port_name`: in containers and Services.
    """

    name: str
    section: str
    port_name: str
    port: int
    protocol: SecurityProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySpec:
    """Who may connect, and as whom.

    `protocol`: of the first listener and the external one. `is_declared`: the specification names it.
    `certificate_secret` None: the operator makes the certificate.
    """

    protocol: SecurityProtocol
    is_declared: bool
    further: Sequence[FurtherListener]
    certificate_secret: str | None
    client_ca_secret: str | None
    has_authorizer: bool
    super_users: Sequence[str]
    admin_password_secret: str | None
    metrics_token_secret: str | None

    @property
    def protocols(self) -> frozenset[SecurityProtocol]:
        """The protocols of all listeners."""
        return frozenset((self.protocol, *(each.protocol for each in self.further)))

    @property
    def uses_tls(self) -> bool:
        """True if a listener has a certificate."""
        return any(each.is_tls for each in self.protocols)

    @property
    def uses_sasl(self) -> bool:
        """True if clients log in by SASL at some listener."""
        return any(each.is_sasl for each in self.protocols)

    @property
    def takes_certificates(self) -> bool:
        """True if clients log in by certificates at some listener."""
        return SecurityProtocol.SSL in self.protocols

    @property
    def takes_plaintext(self) -> bool:
        """True if some listener takes every client, unencrypted."""
        return SecurityProtocol.PLAINTEXT in self.protocols

    @property
    def has_admin(self) -> bool:
        """True if there is an administrator: some listener authenticates its clients."""
        return self.protocols != {SecurityProtocol.PLAINTEXT}

    @property
    def admin_has_password(self) -> bool:
        """True if the administrator logs in by SASL, False by a certificate; by the first listener if it can."""
        return self.protocol.is_sasl or (self.protocol is SecurityProtocol.PLAINTEXT and self.uses_sasl)

    def admin_principal(self, cluster: str) -> str:
        """The principal of the cluster's administrator."""
        name = names.admin(cluster, has_password=self.admin_has_password)
        return f"User:{name}" if self.admin_has_password else f"User:CN={name}"


def security_spec(spec: Mapping[str, Any]) -> SecuritySpec:
    """Parses the section; empty: the defaults."""
    protocol = SecurityProtocol(spec.get("protocol", SecurityProtocol.SASL_SSL))
    default = "none" if protocol is SecurityProtocol.PLAINTEXT else "acl"
    return SecuritySpec(
        protocol=protocol,
        is_declared="protocol" in spec,
        further=tuple(_further(spec)),
        certificate_secret=spec.get("certificateSecret"),
        client_ca_secret=spec.get("clientCaSecret"),
        has_authorizer=spec.get("authorizer", default) == "acl",
        super_users=tuple(spec.get("superUsers", ())),
        admin_password_secret=spec.get("adminPasswordSecret"),
        metrics_token_secret=spec.get("metricsTokenSecret"),
    )


def _further(spec: Mapping[str, Any]) -> Iterator[FurtherListener]:
    if "mutualTls" in spec:
        yield FurtherListener(
            name=MUTUAL,
            section="mutualTls",
            port_name="mutual-tls",
            port=spec["mutualTls"].get("port", MUTUAL_TLS_PORT),
            protocol=SecurityProtocol.SSL,
        )
    if "transition" in spec:
        yield FurtherListener(
            name=TRANSITION,
            section="transition",
            port_name="transition",
            port=spec["transition"].get("port", TRANSITION_PORT),
            protocol=SecurityProtocol(spec["transition"]["protocol"]),
        )
