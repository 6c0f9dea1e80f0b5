"""A user's specification, and the plan that follows from it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.formats.acl_record import acl_key
from kafscale.formats.user_record import ScramMechanism
from kafscale.operator.errors import SpecError
from kafscale.operator.users.notes import notes
from kafscale.operator.users.plan import (
    PARTS,
    UserFound,
    UserPlan,
    named_parts,
    plan_removal,
    plan_user,
)
from kafscale.operator.users.spec import UserSpec, user_spec
from kafscale.settings.broker import Settings, load_settings

SHA_512 = ScramMechanism.SCRAM_SHA_512


def parsed(**parts: Any) -> UserSpec:
    return user_spec({"metadata": {"name": "u"}, "spec": {"clusterRef": {"name": "c"}, **parts}})


def rule(**parts: Any) -> dict[str, Any]:
    return {"resource": {"type": "topic", "name": "t"}, "operations": ["Read"], **parts}


def keys_of(*rules: dict[str, Any]) -> set[str]:
    return {acl_key(each) for each in parsed(authorization={"acls": list(rules)}).rules or ()}


@pytest.mark.parametrize(
    ("parts", "principal"),
    [
        ({}, "User:u"),
        ({"authentication": {"type": "scram-sha-256"}}, "User:u"),
        ({"authentication": {"type": "tls"}}, "User:CN=u"),
        ({"authentication": {"type": "tls-external"}}, "User:CN=u"),
        ({"authentication": {"type": "tls-external"}, "userName": "CN=a,O=b"}, "User:CN=a,O=b"),
        ({"userName": "a:b/c"}, "User:a:b/c"),
    ],
)
def test_principal_follows_from_name_and_authentication(parts: dict[str, Any], principal: str) -> None:
    assert str(parsed(**parts).principal) == principal


def test_rule_has_a_key_for_each_operation() -> None:
    assert keys_of(rule(operations=["Read", "Describe"], host="10.0.0.1")) == {
        "acls/topic/literal/t/User:u/10.0.0.1/read/allow",
        "acls/topic/literal/t/User:u/10.0.0.1/describe/allow",
    }


def test_rules_of_every_type_of_resource() -> None:
    found = keys_of(
        rule(resource={"type": "group", "name": "g-", "patternType": "prefix"}),
        rule(resource={"type": "cluster"}, operations=["IdempotentWrite"]),
        rule(resource={"type": "transactionalId", "name": "*"}, operations=["Write"], type="deny"),
    )
    assert found == {
        "acls/group/prefixed/g-/User:u/*/read/allow",
        "acls/cluster/literal/kafka-cluster/User:u/*/idempotent_write/allow",
        "acls/transactional_id/literal/*/User:u/*/write/deny",
    }


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"operations": ["ClusterAction"]}, "ClusterAction is not an operation of the type topic"),
        ({"host": "10.0.0.1/8"}, "has host bits set"),
        ({"host": "10.0.0"}, "neither an address, a network nor"),
        ({"resource": {"type": "group", "name": "g"}, "operations": ["Write"]}, "legal are"),
    ],
)
def test_impossible_rule_is_refused_by_its_number(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words) as refused:
        parsed(authorization={"acls": [rule(), rule(**parts)]})
    assert "authorization.acls[1]" in str(refused.value)


def test_quotas_have_kafkas_names() -> None:
    wanted = parsed(quotas={"requestPercentage": 50, "consumerByteRate": 7})
    assert wanted.quotas == {"request_percentage": 50.0, "consumer_byte_rate": 7.0}


def test_user_as_declared_needs_no_change() -> None:
    wanted = parsed(
        authentication={"type": "scram-sha-512"},
        authorization={"acls": [rule()]},
        quotas={"consumerByteRate": 7},
    )
    found = UserFound(
        mechanisms=frozenset({SHA_512}),
        has_password=True,
        rules=frozenset(map(acl_key, wanted.rules or ())),
        quotas={"consumer_byte_rate": 7.0},
    )
    assert plan_user(wanted, PARTS, found) == UserPlan()
    assert plan_user(wanted, (), found).is_empty


def test_empty_sections_remove_what_is_there() -> None:
    wanted = parsed(authorization={"acls": []}, quotas={})
    plan = plan_user(wanted, (), UserFound(rules=frozenset({"acls/x"}), quotas={"consumer_byte_rate": 1.0}))
    assert plan.delete_rules == {"acls/x"}
    assert plan.quotas == {}
    assert plan.changes() == ["quotas removed", "1 access rules removed"]


FOUND = st.builds(
    UserFound,
    mechanisms=st.frozensets(st.sampled_from(list(ScramMechanism))),
    has_password=st.booleans(),
    rules=st.frozensets(st.sampled_from(["acls/a", "acls/b", "acls/topic/literal/t/User:u/*/read/allow"])),
    quotas=st.dictionaries(st.sampled_from(["consumer_byte_rate", "producer_byte_rate"]), st.floats(1, 9)),
)
WANTED = st.builds(
    lambda parts: parsed(**parts),
    st.fixed_dictionaries(
        {},
        optional={
            "authentication": st.just({"type": "scram-sha-512"}),
            "authorization": st.sampled_from([{"acls": []}, {"acls": [rule()]}]),
            "quotas": st.sampled_from([{}, {"consumerByteRate": 2}]),
        },
    ),
)


def carried_out(plan: UserPlan, found: UserFound) -> UserFound:
    mechanisms = found.mechanisms if not plan.delete_credentials else frozenset()
    return UserFound(
        mechanisms=frozenset({plan.mechanism}) if plan.mechanism is not None else mechanisms,
        has_password=plan.mechanism is not None or found.has_password,
        rules=(found.rules | plan.put_rules) - plan.delete_rules,
        quotas=found.quotas if plan.quotas is None else plan.quotas,
    )


@given(wanted=WANTED, applied=st.frozensets(st.sampled_from(PARTS)), found=FOUND)
def test_plan_reaches_the_specification_and_no_further(
    wanted: UserSpec, applied: frozenset[str], found: UserFound
) -> None:
    after = carried_out(plan_user(wanted, applied, found), found)
    assert plan_user(wanted, named_parts(wanted), after).is_empty
    if wanted.mechanism is not None:
        assert after.mechanisms == {wanted.mechanism}
        assert after.has_password
    elif "credentials" not in applied:
        assert after.mechanisms == found.mechanisms
    if wanted.rules is not None:
        assert after.rules == set(map(acl_key, wanted.rules))
    elif "authorization" not in applied:
        assert after.rules == found.rules
    if wanted.quotas is None and "quotas" not in applied:
        assert after.quotas == found.quotas


@given(applied=st.frozensets(st.sampled_from(PARTS)), found=FOUND)
def test_removal_leaves_what_was_never_applied(applied: frozenset[str], found: UserFound) -> None:
    after = carried_out(plan_removal(applied, found), found)
    assert after.mechanisms == (frozenset() if "credentials" in applied else found.mechanisms)
    assert after.rules == (frozenset() if "authorization" in applied else found.rules)
    assert after.quotas == ({} if "quotas" in applied else found.quotas)


SECURE = {
    "KAFSCALE_LISTENERS": "A://:9092,B://:9095",
    "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": "A:SASL_SSL,B:SSL",
    "KAFSCALE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
    "KAFSCALE_SSL_CERTIFICATE_FILE": "/a",
    "KAFSCALE_SSL_KEY_FILE": "/b",
    "KAFSCALE_SSL_CLIENT_CA_FILE": "/c",
    "KAFSCALE_SSL_CLIENT_AUTH": "required",
    "KAFSCALE_AUTHORIZER": "acl",
}


@pytest.mark.parametrize(
    ("kind", "secure", "plain"),
    [
        ("scram-sha-512", [], ["no listener asks for a password"]),
        ("scram-sha-256", ["SCRAM-SHA-256 is not an enabled mechanism"], ["no listener asks for a password"]),
        ("tls", [], ["no listener takes client certificates"]),
        ("tls-external", [], ["no listener takes client certificates"]),
    ],
)
def test_unused_declarations_are_noted(kind: str, secure: list[str], plain: list[str]) -> None:
    wanted = parsed(authentication={"type": kind}, authorization={"acls": [rule()]})
    assert notes(wanted, load_settings(SECURE)) == secure
    without = "the brokers have no authorizer, so access rules have no effect"
    assert notes(wanted, Settings()) == [*plain, without]
    assert notes(parsed(authorization={"acls": []}), Settings()) == []
