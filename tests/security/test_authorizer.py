"""Decisions by access rules: Kafka's StandardAuthorizerTest, hosts, what is kept, and a naive reference."""

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.formats.acl_record import AclBinding
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.security import authorizer as authorizer_module
from kafscale.security.acl_index import AclIndex
from kafscale.security.authorizer import Authorizer
from kafscale.security.principal import Principal, parse_principal
from tests.security.acl_rules import (
    ALLOW,
    DENY,
    GROUP,
    HOST,
    LITERAL,
    PREFIXED,
    TOPIC,
    Refusals,
    allows,
    authorizer,
    naive_decision,
    rule,
)
from tests.support.nightly import by_day

READ, WRITE, CREATE, DELETE, ALTER = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, ALL = Operation.DESCRIBE, Operation.ALL
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


def foo(operation: Operation, permission: object) -> AclBinding:
    return rule(TOPIC, "foo_", PREFIXED, "User:bob", "*", operation, permission)  # type: ignore[arg-type]


def bar(operation: Operation, permission: object) -> AclBinding:
    return rule(GROUP, "bar", LITERAL, "User:*", "*", operation, permission)  # type: ignore[arg-type]


# --- StandardAuthorizerTest


@pytest.mark.parametrize("is_open", [False, True])
def test_resource_without_rules_follows_the_default(is_open: bool) -> None:
    of = authorizer(rule(TOPIC, "topic1", LITERAL, "User:Alice", "*", READ, ALLOW), allow_if_no_acl=is_open)
    assert not allows(of, "Bob", READ, TOPIC, "topic1")
    assert allows(of, "Bob", READ, TOPIC, "topic2") is is_open


@pytest.mark.parametrize("operation", [DESCRIBE, READ, WRITE, DELETE, ALTER])
def test_allowed_operation_implies_describe(operation: Operation) -> None:
    assert allows(authorizer(foo(operation, ALLOW)), "bob", DESCRIBE, TOPIC, "foo_bar")


def test_create_does_not_imply_describe() -> None:
    assert not allows(authorizer(foo(CREATE, ALLOW)), "bob", DESCRIBE, TOPIC, "foo_bar")


@pytest.mark.parametrize("operation", [READ, WRITE, DELETE, ALTER])
def test_denied_operation_implies_nothing(operation: Operation) -> None:
    of = authorizer(foo(operation, DENY), foo(DESCRIBE, ALLOW))
    assert allows(of, "bob", DESCRIBE, TOPIC, "foo_bar")


@pytest.mark.parametrize("operation", [DESCRIBE_CONFIGS, ALTER_CONFIGS])
def test_allowed_operation_implies_describe_configs(operation: Operation) -> None:
    assert allows(authorizer(foo(operation, ALLOW)), "bob", DESCRIBE_CONFIGS, TOPIC, "foo_bar")


def test_denied_alter_configs_leaves_describe_configs() -> None:
    of = authorizer(foo(ALTER_CONFIGS, DENY), foo(DESCRIBE_CONFIGS, ALLOW))
    assert allows(of, "bob", DESCRIBE_CONFIGS, TOPIC, "foo_bar")
    assert not allows(of, "bob", ALTER_CONFIGS, TOPIC, "foo_bar")


def test_exact_denial_wins_over_allowance() -> None:
    of = authorizer(foo(DESCRIBE, DENY), foo(ALL, ALLOW))
    assert not allows(of, "bob", DESCRIBE, TOPIC, "foo_bar")
    assert allows(of, "bob", READ, TOPIC, "foo_bar")


def test_principal_matches_itself_and_every_user() -> None:
    of = authorizer(
        foo(READ, ALLOW), bar(READ, DENY), rule(GROUP, "bar", LITERAL, "User:alice", "*", ALL, ALLOW)
    )
    assert allows(of, "bob", READ, TOPIC, "foo_bar")
    assert not allows(of, "alice", READ, TOPIC, "foo_bar")
    assert not allows(of, "alice", READ, GROUP, "bar")
    assert allows(of, "alice", WRITE, GROUP, "bar")


def test_simple_authorizations() -> None:
    of = authorizer(
        foo(READ, ALLOW), foo(WRITE, ALLOW), bar(DESCRIBE_CONFIGS, ALLOW), bar(ALTER_CONFIGS, ALLOW)
    )
    assert allows(of, "bob", READ, TOPIC, "foo_")
    assert allows(of, "fred", ALTER_CONFIGS, GROUP, "bar")


def test_deny_precedence_with_operation_all() -> None:
    of = authorizer(
        rule(TOPIC, "foo", LITERAL, "User:alice", "*", ALL, DENY),
        rule(TOPIC, "foo", PREFIXED, "User:alice", "*", READ, ALLOW),
        rule(TOPIC, "foo", LITERAL, "User:*", "*", ALL, DENY),
        rule(TOPIC, "foo", PREFIXED, "User:*", "*", DESCRIBE, ALLOW),
    )
    asked = [(WRITE, "foo"), (READ, "foo"), (DESCRIBE, "foo"), (READ, "foobar")]
    assert [allows(of, "alice", op, TOPIC, name) for op, name in asked] == [False, False, False, True]
    asked = [(DESCRIBE, "foo"), (READ, "foo"), (WRITE, "foo"), (DESCRIBE, "foobaz"), (READ, "foobaz")]
    assert [allows(of, "bob", op, TOPIC, name) for op, name in asked] == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("user", "asked", "expected"),
    [
        ("alice", [(WRITE, "foo"), (DESCRIBE_CONFIGS, "bar"), (DESCRIBE, "baz")], [True, True, False]),
        ("bob", [(WRITE, "foo"), (READ, "bar"), (DESCRIBE, "baz")], [True, False, True]),
        ("malory", [(DESCRIBE, "foo"), (WRITE, "bar"), (READ, "baz")], [True, False, False]),
    ],
)
def test_topic_rules_with_operation_all(
    user: str, asked: list[tuple[Operation, str]], expected: list[bool]
) -> None:
    of = authorizer(
        rule(TOPIC, "foo", LITERAL, "User:*", "*", ALL, ALLOW),
        rule(TOPIC, "bar", PREFIXED, "User:alice", "*", ALL, ALLOW),
        rule(TOPIC, "baz", LITERAL, "User:bob", "*", ALL, ALLOW),
    )
    assert [allows(of, user, operation, TOPIC, name) for operation, name in asked] == expected


@pytest.mark.parametrize(
    ("user", "host", "expected"),
    [
        ("alice", "127.0.0.1", [True, False, True]),
        ("alice", "192.168.1.1", [False, False, False]),
        ("alice", "192.168.1.2", [True, False, False]),
        ("bob", "127.0.0.1", [False, False, True]),
        ("bob", "192.168.1.1", [False, False, False]),
        ("bob", "192.168.1.2", [False, True, True]),
    ],
)
def test_rules_are_bound_to_their_host(user: str, host: str, expected: list[bool]) -> None:
    of = authorizer(
        rule(TOPIC, "foo", LITERAL, "User:alice", "192.168.1.1", READ, DENY),
        rule(TOPIC, "foo", LITERAL, "User:alice", "*", READ, ALLOW),
        rule(TOPIC, "bar", LITERAL, "User:bob", "192.168.1.2", READ, ALLOW),
        rule(TOPIC, "bar", LITERAL, "User:*", "127.0.0.1", DESCRIBE, ALLOW),
    )
    asked = [(READ, "foo"), (READ, "bar"), (DESCRIBE, "bar")]
    assert [allows(of, user, operation, TOPIC, name, host) for operation, name in asked] == expected


def many_rules() -> Authorizer:
    return authorizer(
        rule(TOPIC, "green2", LITERAL, "User:*", "*", READ, ALLOW),
        rule(TOPIC, "green", PREFIXED, "User:bob", "*", READ, ALLOW),
        rule(TOPIC, "betamax4", LITERAL, "User:bob", "*", READ, ALLOW),
        rule(TOPIC, "betamax", LITERAL, "User:bob", "*", READ, ALLOW),
        rule(TOPIC, "beta", PREFIXED, "User:*", "*", READ, ALLOW),
        rule(TOPIC, "alpha", PREFIXED, "User:*", "*", READ, ALLOW),
        rule(TOPIC, "alp", PREFIXED, "User:bob", "*", READ, DENY),
        rule(GROUP, "*", LITERAL, "User:bob", "*", WRITE, ALLOW),
        rule(GROUP, "wheel", LITERAL, "User:*", "*", WRITE, DENY),
    )


def test_authorization_with_many_rules() -> None:
    of = many_rules()
    assert allows(of, "bob", READ, TOPIC, "green1")
    assert not allows(of, "bob", WRITE, GROUP, "wheel")
    assert not allows(of, "bob", READ, TOPIC, "alpha")
    assert allows(of, "bob", WRITE, GROUP, "arbitrary")
    assert not allows(of, "bob", READ, TOPIC, "ala")


def test_before_the_rules_are_read_only_super_users_get_in() -> None:
    of = Authorizer({"User:superman"}, Refusals(), allow_if_no_acl=True)
    assert not allows(of, "bob", READ, TOPIC, "green1")
    assert not of.access(parse_principal("User:bob"), HOST).allows_any(READ, TOPIC)
    assert allows(of, "superman", READ, TOPIC, "green1")
    assert allows(of, "superman", WRITE, GROUP, "wheel")


def test_super_user_passes_rules_that_deny() -> None:
    of = authorizer(rule(TOPIC, "*", LITERAL, "User:*", "*", ALL, DENY))
    assert allows(of, "superman", ALTER, TOPIC, "t")
    assert of.access(parse_principal("User:superman"), HOST).allows_any(WRITE, TOPIC)
    assert not allows(of, "superma", ALTER, TOPIC, "t")


# --- hosts


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.1.0.0/16", "10.1.255.3", "10.2.0.1"),
        ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
        ("0.0.0.0/0", "198.51.100.1", "::1"),
        ("10.1.2.3", "::ffff:10.1.2.3", "10.1.2.4"),
        ("10.1.2.0/24", "::ffff:10.1.2.3", "::ffff:10.1.3.3"),
        # As Java writes it, which is as Kafka's rules have it.
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1", "2001:db8::2"),
        ("::1", "::1", "::2"),
        ("fe80::/10", "fe80::1%eth0", "fec0::1%eth0"),
    ],
)
def test_host_of_a_rule_is_an_address_or_a_network(pattern: str, inside: str, outside: str) -> None:
    of = authorizer(rule(TOPIC, "t", LITERAL, "User:bob", pattern, READ, ALLOW))
    assert allows(of, "bob", READ, TOPIC, "t", inside)
    assert not allows(of, "bob", READ, TOPIC, "t", outside)


def test_host_that_is_no_address_matches_only_every_host() -> None:
    of = authorizer(
        rule(TOPIC, "t", LITERAL, "User:bob", "0.0.0.0/0", READ, ALLOW),
        rule(TOPIC, "u", LITERAL, "User:bob", "*", READ, ALLOW),
    )
    assert not allows(of, "bob", READ, TOPIC, "t", "unknown")
    assert allows(of, "bob", READ, TOPIC, "u", "unknown")


# --- any resource of a type (KIP-679; Kafka's AuthorizerTest.testAuthorizeByResourceType*)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], False),
        ([("*", LITERAL, ALLOW)], True),
        ([("sb", LITERAL, ALLOW)], True),
        ([("sb", PREFIXED, ALLOW)], True),
        # A denial that covers it.
        ([("sb", LITERAL, ALLOW), ("sb", LITERAL, DENY)], False),
        ([("sb", LITERAL, ALLOW), ("s", PREFIXED, DENY)], False),
        ([("sb", PREFIXED, ALLOW), ("sb", PREFIXED, DENY)], False),
        ([("sb", PREFIXED, ALLOW), ("*", LITERAL, DENY)], False),
        # A denial that leaves something.
        ([("sb", PREFIXED, ALLOW), ("sb", LITERAL, DENY)], True),
        ([("sb", PREFIXED, ALLOW), ("sbx", PREFIXED, DENY)], True),
        ([("*", LITERAL, ALLOW), ("sb", PREFIXED, DENY)], True),
        ([("sa", LITERAL, ALLOW), ("sb", LITERAL, ALLOW), ("sa", LITERAL, DENY)], True),
    ],
)
def test_any_resource_is_allowed_unless_denials_cover_all(
    rules: list[tuple[str, object, object]], expected: bool
) -> None:
    made = [
        AclBinding(TOPIC, pattern, name, "User:bob", "*", WRITE, permission)  # type: ignore[arg-type]
        for name, pattern, permission in rules
    ]
    of = authorizer(*made)
    assert of.access(parse_principal("User:bob"), HOST).allows_any(WRITE, TOPIC) is expected
    assert not of.access(parse_principal("User:eve"), HOST).allows_any(WRITE, TOPIC)
    assert not of.access(parse_principal("User:bob"), HOST).allows_any(READ, TOPIC)
    assert not of.access(parse_principal("User:bob"), HOST).allows_any(WRITE, GROUP)


def test_any_resource_is_allowed_without_rules_if_so_set() -> None:
    of = authorizer(allow_if_no_acl=True)
    assert of.access(parse_principal("User:bob"), HOST).allows_any(WRITE, TOPIC)


# --- what is kept


def test_decision_follows_a_changed_rule() -> None:
    index, stand_ins = AclIndex(), AclIndex()
    of = Authorizer((), Refusals())
    of.replace(index, stand_ins)
    bob = of.access(parse_principal("User:bob"), HOST)
    assert not bob.allows(READ, TOPIC, "foo_1")
    assert not bob.allows_any(READ, TOPIC)
    index.add(foo(READ, ALLOW))
    of.changed()
    assert bob.allows(READ, TOPIC, "foo_1")
    assert bob.allows_any(READ, TOPIC)
    stand_ins.add(foo(ALL, DENY))
    of.changed()
    assert not bob.allows(READ, TOPIC, "foo_1")
    stand_ins.remove(foo(ALL, DENY))
    index.remove(foo(READ, ALLOW))
    of.changed()
    assert not bob.allows(READ, TOPIC, "foo_1")


def test_connections_of_one_client_share_their_rights() -> None:
    of = authorizer()
    first = of.access(parse_principal("User:bob"), HOST)
    assert of.access(Principal("User", "bob"), HOST) is first
    assert of.access(Principal("User", "bob"), "198.51.100.9") is not first


def test_rights_go_with_the_last_connection() -> None:
    of = authorizer()
    for number in range(100):
        of.access(Principal("User", str(number)), HOST).allows(READ, TOPIC, "t")
    gc.collect()
    assert len(of._rights) == 0


def test_kept_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "MAX_KEPT_DECISIONS", 100)
    of = authorizer(foo(READ, ALLOW))
    bob, eve = (of.access(parse_principal(f"User:{name}"), HOST) for name in ("bob", "eve"))
    for number in range(1000):
        assert bob.allows(READ, TOPIC, f"foo_{number}")
        assert not eve.allows(READ, TOPIC, f"foo_{number}")
        assert sum(len(kept) for rights in (bob, eve) for kept in rights._kept) <= 100
    # Of names that only a hostile client has, none.
    for number in range(10):
        assert not eve.allows(READ, GROUP, f"{number}" * 250)
    assert not eve._kept[GROUP]


def test_refusal_is_reported_unless_it_is_quiet() -> None:
    report = Refusals()
    bob = authorizer(foo(READ, ALLOW), report=report).access(parse_principal("User:bob"), HOST)
    assert bob.allows(READ, TOPIC, "foo_1")
    assert not bob.allows(WRITE, TOPIC, "foo_1", quiet=True)
    assert report.seen == []
    assert not bob.allows(WRITE, TOPIC, "foo_1")
    assert not bob.allows_any(WRITE, GROUP)
    assert report.seen == [
        ("User:bob", HOST, WRITE, TOPIC, "foo_1"),
        ("User:bob", HOST, WRITE, GROUP, None),
    ]


def test_operations_are_the_bits_of_the_codes() -> None:
    of = authorizer(foo(READ, ALLOW), foo(ALTER_CONFIGS, ALLOW), foo(DESCRIBE_CONFIGS, DENY))
    bob = of.access(parse_principal("User:bob"), HOST)
    assert bob.operations(TOPIC, "foo_1") == 1 << READ | 1 << DESCRIBE | 1 << ALTER_CONFIGS
    assert bob.operations(ResourceType.CLUSTER, CLUSTER_NAME) == 0


# --- against the naive reference

names = st.text("ab", min_size=1, max_size=4)
rules_of_a_small_world = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.one_of(names, st.just("*")),
    st.sampled_from(["User:x", "User:y", "User:*"]),
    st.sampled_from(["*", "10.0.0.1", "10.0.0.0/8", "10.0.0.0/31"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, ALTER_CONFIGS, DESCRIBE_CONFIGS, CREATE]),
    st.sampled_from([ALLOW, DENY]),
)


@settings(max_examples=by_day(150, by_night=4_000))
@given(
    st.lists(rules_of_a_small_world, max_size=12),
    st.lists(st.integers(0, 11), max_size=6),
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", "z"]),
            st.sampled_from(["10.0.0.1", "10.0.0.2", "192.0.2.1"]),
            st.sampled_from([READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, DELETE]),
            st.sampled_from([TOPIC, GROUP]),
            names,
        ),
        min_size=1,
        max_size=12,
    ),
)
def test_decisions_are_those_of_the_naive_reference(
    rules: list[AclBinding],
    removed: list[int],
    is_open: bool,
    questions: list[tuple[str, str, Operation, ResourceType, str]],
) -> None:
    index = AclIndex()
    for one in rules:
        index.add(one)
    left = set(rules)
    for position in removed:
        if position < len(rules):
            assert index.remove(rules[position]) == (rules[position] in left)
            left.discard(rules[position])
    assert index.rule_count == len(left)
    assert {one for principal in index.principals() for one in index.rules_of(principal)} == left
    of = Authorizer((), Refusals(), allow_if_no_acl=is_open)
    of.replace(index)
    for user, host, operation, kind, name in questions:
        assert allows(of, user, operation, kind, name, host) == naive_decision(
            left, f"User:{user}", host, operation, kind, name, allow_if_no_acl=is_open
        )
