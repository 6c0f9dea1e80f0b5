"""kafka-acls.sh."""

from pathlib import Path

import pytest

from tests.support.client_security import java_config
from tests.support.java import ACLS, JavaRecord, ToolServer
from tests.support.secure_peer import SecurePeer, access
from tests.support.security_plan import SASL_SSL
from tests.support.topics import unique_name


@pytest.mark.nightly
def test_producer_option_allows_to_create_and_write(
    secured: SecurePeer, secure_java: ToolServer, admin_config: Path
) -> None:
    topic = unique_name()
    alice = java_config(access(secured, SASL_SSL, "alice")) | {"max.block.ms": "20000"}
    refused = secure_java.produce(topic, [JavaRecord(value=b"x")], alice)[0]
    assert refused["error"] == "TopicAuthorizationException"
    address = ("--bootstrap-server", alice["bootstrap.servers"], "--command-config", str(admin_config))
    rules = ("--allow-principal", "User:alice", "--producer", "--topic", topic)
    secure_java.tool(ACLS, *address, "--add", *rules).ok()
    try:
        allowed = secure_java.produce(topic, [JavaRecord(value=b"x")], alice)[0]
        assert allowed["offset"] == 0
    finally:  # the other files' tests share this broker
        secure_java.tool(ACLS, *address, "--remove", "--force", *rules).ok()
