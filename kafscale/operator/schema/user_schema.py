"""JSON Schema of a KafscaleUser's `spec`."""

from typing import Any, Final

from kafscale.operator.schema.schema_parts import choice, integer, list_of, section, text

AUTHENTICATIONS: Final = ("scram-sha-512", "scram-sha-256", "tls", "tls-external")
RESOURCE_TYPES: Final = ("topic", "group", "cluster", "transactionalId")
PATTERN_TYPES: Final = ("literal", "prefix")
PERMISSIONS: Final = ("allow", "deny")
OPERATIONS: Final = (
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "DescribeConfigs",
    "AlterConfigs",
    "ClusterAction",
    "IdempotentWrite",
)
MAX_RULES: Final = 500
MAX_RATE: Final = 1_000_000_000_000

_HOST_PATTERN: Final = r"^(\*|[0-9a-fA-F:.]{2,45}(/[0-9]{1,3})?)$"
_IS_TLS: Final = "has({0}.authentication) && {0}.authentication.type in ['tls', 'tls-external']"
_MANAGED_BY_TLS: Final = "has({0}.authentication) && {0}.authentication.type == 'tls'"


def _fixed(field: str) -> list[dict[str, str]]:
    return [{"rule": "self == oldSelf", "message": f"{field} cannot change: make another user"}]


def _authentication() -> dict[str, Any]:
    return section(
        "How the user logs in. Without it the user logs in by other means, such as OAuth, and only its rules and "
        "quotas are kept.",
        {
            "type": choice(
                "scram-sha-512 and scram-sha-256: a password in the Secret. tls: a client certificate in the Secret, "
                "signed by the cluster's client authority. tls-external: a certificate made elsewhere; no Secret.",
                AUTHENTICATIONS,
            ),
            "password": section(
                "The password of a SCRAM user; default: one is generated.",
                {
                    "valueFrom": section(
                        "Where it is.",
                        {
                            "secretKeyRef": section(
                                "A key of a Secret in the user's namespace.",
                                {
                                    "name": text("The Secret's name.", max_length=253),
                                    "key": text("The key in its data.", max_length=253),
                                },
                                required_names=["name", "key"],
                            )
                        },
                        required_names=["secretKeyRef"],
                    )
                },
                required_names=["valueFrom"],
            ),
        },
        required_names=["type"],
        rules=[
            (
                "!has(self.password) || self.type in ['scram-sha-512', 'scram-sha-256']",
                "password is for scram-sha-512 and scram-sha-256",
            )
        ],
    )


def _rule() -> dict[str, Any]:
    return section(
        "What the user may, or must not, do with resources.",
        {
            "type": choice(
                "Allow or deny; a denial outweighs all permissions.", PERMISSIONS, default="allow"
            ),
            "resource": section(
                "The resources.",
                {
                    "type": choice("The kind of resource.", RESOURCE_TYPES),
                    "name": text("The name or its prefix; * for all. Not for cluster.", max_length=249),
                    "patternType": choice("Whether `name` is a prefix.", PATTERN_TYPES, default="literal"),
                },
                required_names=["type"],
                rules=[
                    (
                        "has(self.name) == (self.type != 'cluster')",
                        "resource.name must be given, except for the type cluster",
                    ),
                    (
                        "self.type != 'cluster' || self.patternType == 'literal'",
                        "a resource of the type cluster has the patternType literal",
                    ),
                ],
            ),
            "operations": {
                **list_of(choice("Kafka's operations.", OPERATIONS), min_items=1),
                "maxItems": len(OPERATIONS),
            },
            "host": text(
                "The client's address, a network such as 10.1.0.0/16, or * for all.",
                pattern=_HOST_PATTERN,
                max_length=64,
                default="*",
            ),
        },
        required_names=["resource", "operations"],
    )


def _authorization() -> dict[str, Any]:
    return section(
        "The access rules (ACLs) of the user's principal, exactly these: others are removed.",
        {
            "type": choice("The authorizer.", ["simple"], default="simple"),
            "acls": {**list_of(_rule()), "maxItems": MAX_RULES},
        },
        required_names=["acls"],
    )


def _quotas() -> dict[str, Any]:
    return section(
        "The user's quotas, exactly these, for each broker: others are removed.",
        {
            "producerByteRate": integer("Produced bytes per second.", 1, MAX_RATE),
            "consumerByteRate": integer("Fetched bytes per second.", 1, MAX_RATE),
            "requestPercentage": integer("Request time in percent of one thread.", 1, 100_000),
            "controllerMutationRate": {
                "type": "number",
                "description": "Created and deleted partitions per second.",
                "minimum": 0.001,
                "maximum": 1_000_000,
            },
        },
    )


def spec() -> dict[str, Any]:
    """The whole of `spec`."""
    return section(
        "The desired state of the user.",
        {
            "clusterRef": section(
                "The KafscaleCluster, in the user's namespace.",
                {"name": text("Its name.", max_length=253)},
                required_names=["name"],
            ),
            "userName": {
                **text(
                    "The user's name in Kafka; default: the resource's own, with CN= before it for tls and "
                    "tls-external.",
                    max_length=253,
                    pattern=r"^[^\x00-\x1f\x7f]+$",
                ),
                "x-kubernetes-validations": _fixed("userName"),
            },
            "authentication": _authentication(),
            "authorization": _authorization(),
            "quotas": _quotas(),
        },
        required_names=["clusterRef"],
        rules=[
            (
                f"!({_MANAGED_BY_TLS.format('self')}) || !has(self.userName)",
                "userName is not for tls: the certificate's subject is CN= and the resource's name",
            ),
            (
                f"({_IS_TLS.format('self')}) == ({_IS_TLS.format('oldSelf')})",
                "authentication cannot change between certificates and other means, by which the principal would "
                "change: make another user",
            ),
            (
                "has(self.userName) == has(oldSelf.userName)",
                "userName cannot be given or taken away later: make another user",
            ),
            (
                "self.clusterRef.name == oldSelf.clusterRef.name",
                "clusterRef cannot change: make another user",
            ),
        ],
    )
