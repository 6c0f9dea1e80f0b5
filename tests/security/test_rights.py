"""The rights of one client: what its requests share, and what they do not."""

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.security.principal import parse_principal
from tests.security.acl_rules import Refusals, authorizer


def test_requests_share_decisions_and_are_named_in_refusals() -> None:
    report = Refusals()
    of = authorizer(report=report)
    bob = of.access(parse_principal("User:bob"), "192.0.2.1")
    assert not bob.in_request(ApiKey.PRODUCE).allows(Operation.WRITE, ResourceType.TOPIC, "topic")
    assert not bob.in_request(ApiKey.FETCH).allows(Operation.READ, ResourceType.TOPIC, "topic")
    assert report.requests == [ApiKey.PRODUCE, ApiKey.FETCH]
    assert of._kept_count == 1
    assert bob.in_request(ApiKey.PRODUCE) is bob.in_request(ApiKey.PRODUCE)
