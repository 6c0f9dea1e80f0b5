"""Access rules as stored: keys, what is no rule, and what an unreadable one denies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.acl_record import STORED_ACL, AclBinding, acl_key, decode_acl, denial_of, problem_of
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

ORDERS = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
DENIED = ORDERS._replace(permission=Permission.DENY)
EVERY_TOPIC = DENIED._replace(name="*")


@pytest.mark.parametrize(
    ("binding", "key"),
    [
        (ORDERS, "acls/topic/literal/orders/User:alice/*/read/allow"),
        (
            AclBinding(
                ResourceType.TRANSACTIONAL_ID,
                PatternType.PREFIXED,
                "a/b c",
                "User:CN=ü,O=x",
                "10.0.0.0/8",
                Operation.ALL,
                Permission.DENY,
            ),
            "acls/transactional_id/prefixed/a%2Fb%20c/User:CN%3D%C3%BC%2CO%3Dx/10.0.0.0%2F8/all/deny",
        ),
    ],
)
def test_rule_has_the_key_of_the_format_page(binding: AclBinding, key: str) -> None:
    assert STORED_ACL == b'{"version":1}'
    assert acl_key(binding) == key
    assert decode_acl(key, STORED_ACL) == binding


text = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=40)


@given(
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.USER]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    text,
    text,
    st.sampled_from(["*", "::1", "192.0.2.1", "192.0.2.0/24", "fe80::/10"]),
    st.sampled_from(list(Operation)[2:]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
def test_stored_rule_comes_back(
    resource_type: ResourceType,
    pattern: PatternType,
    name: str,
    user: str,
    host: str,
    operation: Operation,
    permission: Permission,
) -> None:
    binding = AclBinding(resource_type, pattern, name, f"User:{user}", host, operation, permission)
    assert decode_acl(acl_key(binding), STORED_ACL) == binding


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.UNKNOWN}, "Invalid operation UNKNOWN"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"name": ""}, "Resource name should not be empty"),
        (
            {"resource_type": ResourceType.CLUSTER},
            "only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"principal": "alice"}, "Could not parse principal"),
        ({"principal": "User:"}, "Could not parse principal"),
        ({"host": ""}, "Host should not be empty"),
        ({"host": "10.0.0.0/33"}, "Host is no network"),
        ({"host": "10.1.2.3/8"}, "has to be written as 10.0.0.0/8"),
        ({"name": "x" * 5000}, "more than 4096 characters"),
    ],
)
def test_what_is_no_rule_is_refused(change: dict[str, Any], problem: str) -> None:
    assert problem in (problem_of(ORDERS._replace(**change)) or "")


def test_what_is_a_rule_is_taken() -> None:
    assert problem_of(ORDERS) is None
    assert problem_of(ORDERS._replace(resource_type=ResourceType.CLUSTER, name=CLUSTER_NAME)) is None
    # A name with a colon, and a host by name: Kafka takes both.
    assert problem_of(ORDERS._replace(principal="User:a:b", host="client.example")) is None


UNREADABLE = [
    # Readable but for the value: as the key says.
    (acl_key(DENIED), b'{"version":2}', DENIED),
    (acl_key(DENIED), b"", DENIED),
    (acl_key(ORDERS), b'{"version":2}', None),
    # What cannot be read counts as everything.
    ("acls/topic/literal/orders/User:alice/*/fly/deny", STORED_ACL, DENIED._replace(operation=Operation.ALL)),
    ("acls/topic/regex/o.*/User:alice/*/read/deny", STORED_ACL, EVERY_TOPIC),
    ("acls/topic/literal/a b/User:alice/*/read/deny", STORED_ACL, EVERY_TOPIC),
    ("acls/topic/literal/%zz/User:alice/*/read/deny", STORED_ACL, EVERY_TOPIC),
    ("acls/topic/literal/orders/alice/*/read/deny", STORED_ACL, DENIED._replace(principal="User:*")),
    ("acls/topic/literal/orders/User:alice/1.2.3.4%2F8/read/deny", STORED_ACL, DENIED),
    ("acls/topic/literal/orders/User:alice/*/read/maybe", STORED_ACL, DENIED),
    ("acls/topic/literal/orders/User:alice/*/read/ALLOW", STORED_ACL, DENIED),
    (
        "acls/topic/literal/orders",
        STORED_ACL,
        EVERY_TOPIC._replace(principal="User:*", operation=Operation.ALL),
    ),
    (
        "acls/cluster/literal/other/User:alice/*/read/deny",
        STORED_ACL,
        DENIED._replace(resource_type=ResourceType.CLUSTER, name=CLUSTER_NAME),
    ),
    # It allows at most; or it is about what this release does not have.
    ("acls/topic/regex/o.*/User:alice/*/read/allow", STORED_ACL, None),
    ("acls/moon/literal/far-side/User:alice/*/read/deny", STORED_ACL, None),
    ("acls/", STORED_ACL, None),
]


@pytest.mark.parametrize(("key", "value", "denial"), UNREADABLE)
def test_unreadable_rule_denies_what_it_might_deny(key: str, value: bytes, denial: AclBinding | None) -> None:
    with pytest.raises((CorruptDataError, UnknownFormatVersionError)):
        decode_acl(key, value)
    assert denial_of(key) == denial
