"""JSON Schema of a KafscaleCluster's `spec.security`."""

from typing import Any, Final

from kafscale.operator.schema.schema_parts import choice, integer, list_of, section, text

PROTOCOLS: Final = ("SASL_SSL", "SSL", "SASL_PLAINTEXT", "PLAINTEXT")
AUTHORIZERS: Final = ("acl", "none")
MUTUAL_TLS_PORT: Final = 9095
TRANSITION_PORT: Final = 9096
_OWN_PORTS_RULE: Final = (
    "!(self.port in [9092, 9093])",
    "port must not be 9092 or 9093: brokers listen there already",
)


def security() -> dict[str, Any]:
    """The section. `protocol` has no default of the API server: the operator must see that it was chosen."""
    return section(
        "Who may connect, and as whom. Without it: SASL_SSL with certificates and an administrator's password that "
        "the operator makes, and an authorizer.",
        {
            "protocol": choice(
                "The protocol of the listeners for clients inside and outside; default: SASL_SSL (TLS, passwords). "
                "SSL: TLS, clients have certificates. SASL_PLAINTEXT: passwords without encryption. PLAINTEXT: no "
                "encryption, and every client that reaches the port may do everything.",
                PROTOCOLS,
            ),
            "mutualTls": section(
                "A further listener within the Kubernetes cluster, where clients have certificates (protocol SSL).",
                {"port": integer("Its port.", 1, 65535, default=MUTUAL_TLS_PORT)},
                rules=[_OWN_PORTS_RULE],
            ),
            "transition": section(
                "A further listener within the Kubernetes cluster, through which clients change the protocol, some "
                "earlier than others (docs/security.md).",
                {
                    "protocol": choice("Its protocol.", PROTOCOLS),
                    "port": integer("Its port.", 1, 65535, default=TRANSITION_PORT),
                },
                required_names=["protocol"],
                rules=[_OWN_PORTS_RULE],
            ),
            "certificateSecret": text(
                "A Secret with tls.crt and tls.key of the brokers, as cert-manager makes it; default: the operator "
                "makes the certificate and its authority, which is in the Secret NAME-ca.",
                max_length=253,
            ),
            "clientCaSecret": text(
                "A Secret with ca.crt: authorities of clients' certificates, besides the operator's own.",
                max_length=253,
            ),
            "authorizer": choice(
                "acl: what no access rule allows is refused. none: every authenticated client may do everything. "
                "Default: acl, and none for PLAINTEXT.",
                AUTHORIZERS,
            ),
            "superUsers": {
                **list_of(
                    text("A principal that may do everything, such as User:ops.", pattern=r"^[^;:\s]+:[^;]+$")
                ),
                "maxItems": 100,
            },
            "adminPasswordSecret": text(
                "A Secret with the administrator's `password`; default: the operator generates one, in the Secret "
                "NAME-admin.",
                max_length=253,
            ),
            "metricsTokenSecret": text(
                "A Secret with a `token` that requests for the brokers' metrics must have; default: none is needed.",
                max_length=253,
            ),
        },
        rules=[
            (
                "!has(self.protocol) || self.protocol != 'PLAINTEXT' || has(self.transition) || "
                "!(has(self.certificateSecret) || has(self.adminPasswordSecret) || "
                "(has(self.authorizer) && self.authorizer == 'acl'))",
                "certificateSecret, adminPasswordSecret and authorizer acl are not for the protocol PLAINTEXT alone",
            ),
            (
                "!has(self.transition) || has(self.protocol)",
                "transition needs protocol: from which, or to which protocol clients move",
            ),
            (
                "!has(self.protocol) || self.protocol in ['SASL_SSL', 'SSL'] || !has(self.mutualTls)",
                "mutualTls is for the protocols SASL_SSL and SSL",
            ),
        ],
    )
