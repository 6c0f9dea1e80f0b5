"""A user becomes what its resource says, and every other user stays as it is."""

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography import x509

from kafscale.metadata import keys
from kafscale.metadata.store import Delete
from kafscale.operator import api_names
from kafscale.operator.certificates import KeyPair, new_authority
from kafscale.operator.kube.kinds import CLUSTER, SECRET, USER
from kafscale.operator.stores.cluster_connection import NotReadyError
from tests.operator.user_scene import SHA_256, SHA_512, Scene, acls, scram, user_scene
from tests.support.kube_memory import NAMESPACE

EVERYTHING: dict[str, Any] = {
    "authentication": scram(),
    "authorization": acls(("orders", "Read", "allow"), ("secret", "All", "deny")),
    "quotas": {"producerByteRate": 1000, "controllerMutationRate": 0.5},
}
RULES = {"topic/literal/orders/User:u/*/read/allow", "topic/literal/secret/User:u/*/all/deny"}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with user_scene() as found:
        yield found


async def test_user_gets_password_rules_and_quotas(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    assert scene.kube.user_condition("u")[:2] == ("Ready", "AsDeclared")
    password = scene.kube.password("u")
    assert len(password) >= 32
    assert await scene.accepts(password)
    assert list(await scene.credentials()) == [SHA_512]
    assert await scene.rules() == RULES
    assert await scene.quotas() == {"producer_byte_rate": 1000, "controller_mutation_rate": 0.5}
    status = scene.kube.user_status("u")
    assert (status["principal"], status["secret"]) == ("User:u", "u")
    assert status["applied"] == ["authorization", "credentials", "quotas"]
    secret = scene.kube.secret("u")
    assert secret is not None
    assert secret["sasl.jaas.config"].decode() == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="u" password="{password}";'
    )


async def test_second_pass_writes_nothing(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    version = scene.kube.user("u")["metadata"]["resourceVersion"]
    before, password, events = await scene.revision(), scene.kube.password("u"), list(scene.kube.events)
    await scene.look()
    assert await scene.revision() == before
    assert scene.kube.password("u") == password
    assert scene.kube.user("u")["metadata"]["resourceVersion"] == version
    assert scene.kube.events == events


async def test_passwords_are_in_no_status_and_no_event(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    first = scene.kube.password("u")
    scene.kube.annotate_user("u", **{api_names.ROTATE: "1"})
    await scene.look()
    told = str(scene.kube.user("u")) + str(scene.kube.events)
    assert first not in told
    assert scene.kube.password("u") not in told


async def test_foreign_principals_stay_untouched(scene: Scene) -> None:
    theirs = {"topic/literal/orders/User:other/*/write/allow", "topic/literal/orders/User:*/*/read/deny"}
    for rule in theirs:
        await scene.add_rule(rule)
    await scene.set_password("theirs", SHA_512, name="other")
    await scene.set_quotas("other", consumer_byte_rate=5)
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    assert await scene.rules() == RULES | theirs
    scene.kube.begin_deletion(USER, "u")
    assert await scene.finish()
    assert await scene.rules() == theirs
    assert await scene.accepts("theirs", name="other")
    assert await scene.quotas("other") == {"consumer_byte_rate": 5}


async def test_drift_of_the_principal_is_corrected(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    await scene.set_password("another", SHA_512, SHA_256)
    await scene.add_rule("cluster/literal/kafka-cluster/User:u/*/all/allow")
    await scene.remove_rule("topic/literal/secret/User:u/*/all/deny")
    await scene.set_quotas(producer_byte_rate=9e9)
    await scene.look()
    assert list(await scene.credentials()) == [SHA_512]
    assert await scene.accepts(scene.kube.password("u"))
    assert await scene.rules() == RULES
    assert await scene.quotas() == {"producer_byte_rate": 1000, "controller_mutation_rate": 0.5}


async def test_parts_that_are_not_named_are_left_alone(scene: Scene) -> None:
    await scene.set_password("mine", SHA_256)
    await scene.add_rule("topic/literal/t/User:u/*/read/allow")
    await scene.set_quotas(consumer_byte_rate=7)
    before = await scene.revision()
    scene.kube.add_user("u")
    await scene.look()
    assert scene.kube.user_condition("u")[0] == "Ready"
    assert await scene.revision() == before
    scene.kube.begin_deletion(USER, "u")
    assert await scene.finish()
    assert await scene.revision() == before


async def test_parts_no_longer_named_are_removed(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    scene.kube.change_user("u", authentication=None, authorization=None, quotas=None)
    await scene.look()
    assert (await scene.credentials(), await scene.rules(), await scene.quotas()) == ({}, set(), {})
    assert scene.kube.secret("u") == {}
    status = scene.kube.user_status("u")
    assert (status["applied"], "secret" in status) == ([], False)


async def test_mechanism_changes_and_password_stays(scene: Scene) -> None:
    scene.kube.add_user("u", authentication=scram())
    await scene.look()
    password = scene.kube.password("u")
    scene.kube.change_user("u", authentication=scram("scram-sha-256"))
    await scene.look()
    assert list(await scene.credentials()) == [SHA_256]
    assert scene.kube.password("u") == password
    assert await scene.accepts(password, SHA_256)


async def test_deleted_secret_rotates_the_password(scene: Scene) -> None:
    scene.kube.add_user("u", authentication=scram())
    await scene.look()
    first = scene.kube.password("u")
    scene.kube.remove(SECRET, "u")
    await scene.look()
    second = scene.kube.password("u")
    assert second != first
    assert await scene.accepts(second)
    assert not await scene.accepts(first)


async def test_annotation_rotates_once_for_each_value(scene: Scene) -> None:
    scene.kube.add_user("u", authentication=scram())
    await scene.look()
    passwords = [scene.kube.password("u")]
    for value in ("monday", "monday", "tuesday"):
        scene.kube.annotate_user("u", **{api_names.ROTATE: value})
        await scene.look()
        passwords.append(scene.kube.password("u"))
    assert len(set(passwords)) == 3
    assert passwords[1] == passwords[2]
    assert await scene.accepts(passwords[-1])


async def test_given_password_is_used_and_followed(scene: Scene) -> None:
    reference = {"valueFrom": {"secretKeyRef": {"name": "given", "key": "word"}}}
    scene.kube.add_user("u", authentication=scram(password=reference))
    await scene.look()
    assert scene.kube.user_condition("u")[:2] == ("Pending", "SecretMissing")
    scene.kube.put_secret("given", other="x")
    await scene.look()
    assert "has no word" in scene.kube.user_condition("u")[2]
    for password in ("first", 'sec"ond\\'):
        scene.kube.put_secret("given", word=password)
        await scene.look()
        assert scene.kube.password("u") == password
        assert await scene.accepts(password)
    secret = scene.kube.secret("u")
    assert secret is not None
    assert secret["sasl.jaas.config"].endswith(rb'password="sec\"ond\\";')


@pytest.mark.parametrize("password", [b"", b"line\nbreak", b"\xff", b"x" * 1025])
async def test_illegal_password_is_refused_unquoted(scene: Scene, password: bytes) -> None:
    reference = {"valueFrom": {"secretKeyRef": {"name": "given", "key": "word"}}}
    scene.kube.put_secret("given", word=password)
    scene.kube.add_user("u", authentication=scram(password=reference))
    await scene.look()
    phase, reason, message = scene.kube.user_condition("u")
    assert (phase, reason) == ("Failed", "InvalidSpec")
    assert "line" not in message.replace("line break", "")
    assert "xx" not in message
    assert await scene.credentials() == {}


async def test_foreign_secret_of_the_name_is_not_written(scene: Scene) -> None:
    scene.kube.put_secret("u", password="somebody's")
    scene.kube.add_user("u", authentication=scram())
    await scene.look()
    assert scene.kube.user_condition("u")[:2] == ("Failed", "SecretTaken")
    assert scene.kube.password("u") == "somebody's"
    assert await scene.credentials() == {}
    scene.kube.change_user("u", authentication=None)
    await scene.look()
    assert scene.kube.password("u") == "somebody's"


def put_authority(scene: Scene) -> KeyPair:
    pair = new_authority("clients of c", scene.now)
    scene.kube.put_secret(
        "c-client-authority", **{"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": pair.certificate}
    )
    return pair


async def test_certificate_is_signed_and_renewed(scene: Scene) -> None:
    scene.kube.add_user("u", authentication={"type": "tls"}, quotas={"consumerByteRate": 3})
    await scene.look()
    assert scene.kube.user_condition("u")[:2] == ("Pending", "ClientAuthorityMissing")
    authority = put_authority(scene)
    await scene.look()
    secret = scene.kube.secret("u")
    assert secret is not None
    assert set(secret) == {"user.crt", "user.key", "ca.crt"}
    first = x509.load_pem_x509_certificate(secret["user.crt"])
    first.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    assert first.subject.rfc4514_string() == "CN=u"
    assert scene.kube.user_status("u")["principal"] == "User:CN=u"
    assert await scene.quotas("CN=u") == {"consumer_byte_rate": 3}
    assert await scene.credentials("CN=u") == {}
    await scene.look()
    assert scene.kube.secret("u") == secret
    scene.now += datetime.timedelta(days=300)
    await scene.look()
    renewed = scene.kube.secret("u")
    assert renewed is not None
    assert x509.load_pem_x509_certificate(renewed["user.crt"]).serial_number != first.serial_number


async def test_external_certificate_needs_no_secret(scene: Scene) -> None:
    scene.kube.add_user(
        "u",
        userName="CN=u,O=Example",
        authentication={"type": "tls-external"},
        authorization=acls(("t", "Write", "allow")),
    )
    await scene.look()
    assert scene.kube.secret("u") is None
    assert await scene.rules() == {"topic/literal/t/User:CN%3Du%2CO%3DExample/*/write/allow"}


async def test_deleted_resource_removes_its_user(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    scene.kube.begin_deletion(USER, "u")
    assert await scene.finish()
    assert (await scene.credentials(), await scene.rules(), await scene.quotas()) == ({}, set(), {})
    assert scene.kube.events[-1][0] == "UserDeleted"


async def test_user_outlives_a_cluster_that_goes(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    scene.kube.begin_deletion(CLUSTER, "c")
    scene.kube.begin_deletion(USER, "u")
    assert await scene.finish()
    assert await scene.rules() == RULES
    assert scene.kube.events[-1][0] == "UserKept"


async def test_second_resource_of_a_user_waits_for_the_first(scene: Scene) -> None:
    scene.kube.add_user("first", userName="u", quotas={"consumerByteRate": 1})
    scene.kube.add_user("second", userName="u", quotas={"consumerByteRate": 2})
    await scene.look("second")
    assert scene.kube.user_condition("second")[:2] == ("Failed", "UserNamedTwice")
    await scene.look("first")
    assert await scene.quotas() == {"consumer_byte_rate": 1}
    scene.kube.begin_deletion(USER, "first")
    assert await scene.finish("first")
    assert scene.woken == ["second"]
    assert await scene.quotas() == {"consumer_byte_rate": 1}
    scene.kube.remove(USER, "first")
    await scene.look("second")
    assert await scene.quotas() == {"consumer_byte_rate": 2}


async def test_cluster_that_is_not_ready_is_waited_for(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    scene.clusters.problem = NotReadyError("ClusterNotStarted", "no broker has started yet")
    await scene.look()
    assert scene.kube.user_condition("u") == ("Pending", "ClusterNotStarted", "no broker has started yet")
    assert scene.kube.secret("u") is None


async def test_emptied_store_is_not_written(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    everything = (await scene.store.range("")).items
    await scene.store.transact([], [Delete(item.key) for item in everything])
    await scene.look()
    assert scene.kube.user_condition("u")[0] == "Pending"
    assert "emptied" in scene.kube.user_condition("u")[2]
    assert (await scene.store.range("")).items == ()


async def test_deletion_waits_for_a_store_that_is_away(scene: Scene) -> None:
    scene.kube.add_user("u", **EVERYTHING)
    await scene.look()
    scene.kube.begin_deletion(USER, "u")
    scene.clusters.problem = NotReadyError("MetadataStoreUnreachable", "etcd is away")
    assert not await scene.finish()
    assert scene.kube.user_condition("u") == ("Deleting", "Deleting", "etcd is away")
    scene.clusters.problem = None
    assert await scene.finish()
    assert await scene.rules() == set()


async def test_credentials_of_a_newer_release_stay(scene: Scene) -> None:
    newer = b'{"version":9,"scram":{}}'
    await scene.put(keys.user("u"), newer)
    scene.kube.add_user("u", authentication=scram())
    await scene.look()
    assert scene.kube.user_condition("u")[:2] == ("Failed", "MetadataCorrupt")
    found = await scene.store.get(keys.user("u"))
    assert found is not None
    assert found.value == newer


async def test_rules_of_many_fit_several_transactions(scene: Scene) -> None:
    names = [f"t{number}" for number in range(300)]
    rules = [(name, "Read", "allow") for name in names] + [(name, "Write", "deny") for name in names[:100]]
    scene.kube.add_user("u", authorization=acls(*rules))
    await scene.look()
    assert len(await scene.rules()) == 400
    scene.kube.change_user("u", authorization=acls(("t1", "Read", "allow")))
    await scene.look()
    assert await scene.rules() == {"topic/literal/t1/User:u/*/read/allow"}


async def test_metric_counts_by_phase(scene: Scene) -> None:
    scene.kube.add_user("u", quotas={"consumerByteRate": 1})
    operator = scene.operator(registry=scene.registry)
    await operator.reconcile(NAMESPACE, "u")
    labels = {"namespace": NAMESPACE, "cluster": "c", "phase": "Ready"}
    assert scene.registry.get_sample_value("kafscale_user_resources", labels) == 1
    operator.forget(NAMESPACE, "u")
    assert scene.registry.get_sample_value("kafscale_user_resources", labels) is None
