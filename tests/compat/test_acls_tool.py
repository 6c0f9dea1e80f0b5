"""kafka-acls.sh in each of its modes: Kafka and Kafscale keep, show and remove the same rules."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.tools import java_missing
from tests.support.group_peer import Peer, group_peer, peer_kind
from tests.support.java import ACLS, ToolResult, ToolServer

KAFKA = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
KAFSCALE = {"authorizer": "acl", "super_users": "User:ANONYMOUS"}
ALL_RULES = ("--list",)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker with an authorizer, which lets its plaintext clients do everything."""
    missing = java_missing()
    if missing:
        pytest.skip(missing)
    settings: dict[str, Any] = KAFKA if peer_kind() == "kafka" else KAFSCALE
    with group_peer(tmp_path_factory.mktemp("acls"), **settings) as running:
        yield running


class AclsTool:
    """`kafka-acls.sh --bootstrap-server` of one broker."""

    def __init__(self, java: ToolServer, peer: Peer) -> None:
        self._java = java
        self._peer = peer

    def __call__(self, *arguments: str) -> ToolResult:
        return self._java.tool(ACLS, "--bootstrap-server", self._peer.bootstrap, *arguments)

    def rules(self, *arguments: str) -> dict[str, set[str]]:
        """The rules that `--list` shows, by resource."""
        found: dict[str, set[str]] = {}
        resource = ""
        for line in self("--list", *arguments).ok().splitlines():
            text = line.strip()
            if text.startswith("Current ACLs for resource"):
                resource = text.split("`", 1)[1].rstrip(": `")
            elif text.startswith("(principal="):
                found.setdefault(resource, set()).add(text)
        return found


@pytest.fixture
def acls(java: ToolServer, peer: Peer) -> Iterator[AclsTool]:
    """The tool, and a broker without rules."""
    tool = AclsTool(java, peer)
    yield tool
    for kind in ("--topic", "--group", "--transactional-id"):
        tool("--remove", kind, "*", "--resource-pattern-type", "match", "--force")
        for name in ("orders", "logs-1", "team", "tx"):
            tool("--remove", kind, name, "--resource-pattern-type", "match", "--force")
    tool("--remove", "--cluster", "--force")
    assert tool.rules() == {}


def resource(kind: str, name: str, pattern: str = "LITERAL") -> str:
    return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern})"


def entry(user: str, operation: str, host: str = "*", permission: str = "ALLOW") -> str:
    return f"(principal=User:{user}, host={host}, operation={operation}, permissionType={permission})"


def test_added_rule_is_listed_and_removed(acls: AclsTool) -> None:
    rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    added = acls("--add", *rule).ok()
    assert "Adding ACLs for resource" in added
    assert acls.rules() == {resource("TOPIC", "orders"): {entry("alice", "READ")}}
    # Twice is once.
    acls("--add", *rule).ok()
    assert acls.rules() == {resource("TOPIC", "orders"): {entry("alice", "READ")}}
    acls("--remove", *rule, "--force").ok()
    assert acls.rules() == {}


def test_several_principals_hosts_and_operations_are_a_product(acls: AclsTool) -> None:
    acls(
        *("--add", "--topic", "orders", "--operation", "Read", "--operation", "Describe"),
        *("--allow-principal", "User:alice", "--allow-principal", "User:CN=bob,O=x"),
        *("--allow-host", "192.0.2.1", "--allow-host", "192.0.2.2"),
        *("--deny-principal", "User:eve", "--deny-host", "198.51.100.7"),
    ).ok()
    expected = {
        entry(user, operation, host)
        for user in ("alice", "CN=bob,O=x")
        for operation in ("READ", "DESCRIBE")
        for host in ("192.0.2.1", "192.0.2.2")
    } | {entry("eve", operation, "198.51.100.7", "DENY") for operation in ("READ", "DESCRIBE")}
    assert acls.rules() == {resource("TOPIC", "orders"): expected}
    only_alice = acls.rules("--principal", "User:alice")
    assert {one for entries in only_alice.values() for one in entries} == {
        one for one in expected if "alice" in one
    }


def test_every_kind_of_resource_has_rules(acls: AclsTool) -> None:
    alice = ("--add", "--allow-principal", "User:alice")
    acls(*alice, "--operation", "All", "--topic", "*").ok()
    acls(*alice, "--operation", "Delete", "--group", "team").ok()
    acls(*alice, "--operation", "Describe", "--transactional-id", "tx").ok()
    acls(*alice, "--operation", "IdempotentWrite", "--cluster").ok()
    acls(*alice, "--operation", "Write", "--topic", "logs-", "--resource-pattern-type", "prefixed").ok()
    assert acls.rules() == {
        resource("TOPIC", "*"): {entry("alice", "ALL")},
        resource("GROUP", "team"): {entry("alice", "DELETE")},
        resource("TRANSACTIONAL_ID", "tx"): {entry("alice", "DESCRIBE")},
        resource("CLUSTER", "kafka-cluster"): {entry("alice", "IDEMPOTENT_WRITE")},
        resource("TOPIC", "logs-", "PREFIXED"): {entry("alice", "WRITE")},
    }


def test_convenience_options_make_the_same_rules(acls: AclsTool) -> None:
    acls(
        *("--add", "--allow-principal", "User:p", "--producer", "--topic", "orders"),
        *("--transactional-id", "tx", "--idempotent"),
    ).ok()
    acls("--add", "--allow-principal", "User:c", "--consumer", "--topic", "orders", "--group", "team").ok()
    assert acls.rules() == {
        resource("TOPIC", "orders"): {
            *(entry("p", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")),
            *(entry("c", operation) for operation in ("READ", "DESCRIBE")),
        },
        resource("TRANSACTIONAL_ID", "tx"): {entry("p", "WRITE"), entry("p", "DESCRIBE")},
        resource("CLUSTER", "kafka-cluster"): {entry("p", "IDEMPOTENT_WRITE")},
        resource("GROUP", "team"): {entry("c", "READ")},
    }


def test_pattern_types_select_rules(acls: AclsTool) -> None:
    alice = ("--add", "--allow-principal", "User:alice", "--operation", "Read")
    acls(*alice, "--topic", "logs-1").ok()
    acls(*alice, "--topic", "logs-", "--resource-pattern-type", "prefixed").ok()
    acls(*alice, "--topic", "*").ok()
    literal, prefixed, every = (
        resource("TOPIC", "logs-1"),
        resource("TOPIC", "logs-", "PREFIXED"),
        resource("TOPIC", "*"),
    )
    by_type = ("--resource-pattern-type",)
    assert acls.rules("--topic", "logs-1").keys() == {literal}
    assert acls.rules("--topic", "logs-1", *by_type, "match").keys() == {literal, prefixed, every}
    assert acls.rules("--topic", "logs-2", *by_type, "match").keys() == {prefixed, every}
    assert acls.rules("--topic", "logs-", *by_type, "any").keys() == {prefixed}
    assert acls.rules("--topic", "logs-", *by_type, "prefixed").keys() == {prefixed}
    acls("--remove", "--topic", "logs-1", *by_type, "match", "--force").ok()
    assert acls.rules() == {}


def test_removal_of_one_entry_leaves_the_others(acls: AclsTool) -> None:
    alice = ("--allow-principal", "User:alice", "--topic", "orders")
    acls("--add", *alice, "--operation", "Read", "--operation", "Write").ok()
    acls("--add", "--deny-principal", "User:eve", "--topic", "orders", "--operation", "Read").ok()
    acls("--remove", *alice, "--operation", "Read", "--force").ok()
    assert acls.rules() == {
        resource("TOPIC", "orders"): {entry("alice", "WRITE"), entry("eve", "READ", permission="DENY")}
    }
    acls("--remove", "--topic", "orders", "--force").ok()
    assert acls.rules() == {}


def test_rule_that_is_none_is_refused(acls: AclsTool) -> None:
    cluster = ("--operation", "ClusterAction", "--cluster")
    refused = acls("--add", "--allow-principal", "User:a", *cluster, "--resource-pattern-type", "match")
    assert refused.exit_code == 1
    no_colon = acls("--add", "--allow-principal", "alice", "--operation", "Read", "--topic", "orders")
    assert no_colon.exit_code == 1
    assert acls.rules() == {}
