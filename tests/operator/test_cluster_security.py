"""Listeners, certificates and the administrator of a cluster follow from its section `security`."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from kafscale.operator.certificates import CA, CERTIFICATE, KEY, new_authority
from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.clusters.certificates import broker_hosts, plan_secrets, secret_names
from kafscale.operator.clusters.plan import check_protocol
from kafscale.operator.errors import SpecError
from kafscale.operator.manifests import broker_services, broker_settings, network_policy
from kafscale.operator.manifests.admin_user import admin_user
from kafscale.operator.manifests.broker_set import broker_set
from kafscale.operator.manifests.objects import Manifest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MUTUAL: dict[str, Any] = {"mutualTls": {}}
Held = dict[str, dict[str, bytes]]


def cluster(security: dict[str, Any] | None = None, **brokers: Any) -> ClusterSpec:
    spec: dict[str, Any] = {
        "brokers": {"replicas": 3, **brokers},
        "s3": {"bucket": "records"},
        "etcd": {"endpoints": ["http://etcd:2379"]},
    }
    return cluster_spec("c", "shop", spec if security is None else {**spec, "security": security})


def container(found: ClusterSpec) -> Manifest:
    (only,) = broker_set(found, "kafscale:1")["spec"]["template"]["spec"]["containers"]
    return dict(only)


def variables(found: ClusterSpec) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(found)["env"] if "value" in each}


def mounts(found: ClusterSpec) -> dict[str, str]:
    """Folder by Secret."""
    pod = broker_set(found, "kafscale:1")["spec"]["template"]["spec"]
    folders = {each["name"]: each["mountPath"] for each in container(found)["volumeMounts"]}
    return {
        each["secret"]["secretName"]: folders[each["name"]] for each in pod["volumes"] if "secret" in each
    }


def test_default_is_sasl_ssl_with_an_authorizer() -> None:
    found = variables(cluster())
    assert found["KAFSCALE_LISTENERS"] == "INTERNAL://:9092"
    assert found["KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"] == "INTERNAL:SASL_SSL"
    assert found["KAFSCALE_ADVERTISED_LISTENERS"] == "INTERNAL://$(POD_NAME).c-brokers.shop.svc:9092"
    assert found["KAFSCALE_SASL_ENABLED_MECHANISMS"] == "SCRAM-SHA-512,SCRAM-SHA-256"
    assert (found["KAFSCALE_AUTHORIZER"], found["KAFSCALE_SUPER_USERS"]) == ("acl", "User:c-admin")
    assert found["KAFSCALE_SSL_CERTIFICATE_FILE"] == "/etc/kafscale/tls/tls.crt"
    assert not {"KAFSCALE_ALLOW_PLAINTEXT", "KAFSCALE_SSL_CLIENT_AUTH", "KAFSCALE_BROKER_ADDR"} & set(found)
    assert mounts(cluster()) == {"c-broker-tls": "/etc/kafscale/tls"}


def test_plaintext_has_to_be_said() -> None:
    found = variables(cluster({"protocol": "PLAINTEXT"}, external={"hostTemplate": "k-{id}.example.com"}))
    assert found["KAFSCALE_LISTENERS"] == "PLAINTEXT://:9092,EXTERNAL://:9094"
    assert found["KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"] == "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"
    assert found["KAFSCALE_ADVERTISED_LISTENERS"] == (
        "PLAINTEXT://$(POD_NAME).c-brokers.shop.svc:9092,EXTERNAL://k-$(KAFSCALE_BROKER_ID).example.com:9094"
    )
    assert found["KAFSCALE_ALLOW_PLAINTEXT"] == "true"
    assert not {name for name in found if "SSL" in name or "SASL" in name or "SUPER" in name}
    assert mounts(cluster({"protocol": "PLAINTEXT"})) == {}
    assert admin_user(cluster({"protocol": "PLAINTEXT"})) is None


def test_certificates_of_clients_have_a_listener() -> None:
    wanted = cluster(MUTUAL, external={"hostTemplate": "k-{id}.example.com"}, networkPolicy={"clients": [{}]})
    found = variables(wanted)
    assert found["KAFSCALE_LISTENERS"] == "INTERNAL://:9092,EXTERNAL://:9094,MUTUAL://:9095"
    assert found["KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"] == (
        "INTERNAL:SASL_SSL,EXTERNAL:SASL_SSL,MUTUAL:SSL"
    )
    assert found["KAFSCALE_ADVERTISED_LISTENERS"].split(",")[1:] == [
        "MUTUAL://$(POD_NAME).c-brokers.shop.svc:9095",
        "EXTERNAL://k-$(KAFSCALE_BROKER_ID).example.com:9094",
    ]
    assert found["KAFSCALE_SSL_CLIENT_AUTH"] == "required"
    assert mounts(wanted)["c-client-ca"] == "/etc/kafscale/client-ca"
    for service in broker_services.within(wanted):
        assert {"name": "mutual-tls", "port": 9095, "targetPort": "mutual-tls"} in service["spec"]["ports"]
    policy = network_policy.broker_policy(wanted)
    assert policy is not None
    assert [each["ports"][0]["port"] for each in policy["spec"]["ingress"]] == [9092, 9093, 9095, 9094]


def test_clients_of_two_protocols_have_a_listener_each() -> None:
    wanted = cluster(
        {"protocol": "PLAINTEXT", "transition": {"protocol": "SASL_SSL"}, "mutualTls": {}},
        networkPolicy={"clients": [{}]},
    )
    found = variables(wanted)
    assert found["KAFSCALE_LISTENERS"] == "PLAINTEXT://:9092,MUTUAL://:9095,TRANSITION://:9096"
    assert found["KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"] == (
        "PLAINTEXT:PLAINTEXT,MUTUAL:SSL,TRANSITION:SASL_SSL"
    )
    assert "TRANSITION://$(POD_NAME).c-brokers.shop.svc:9096" in found["KAFSCALE_ADVERTISED_LISTENERS"]
    assert (found["KAFSCALE_ALLOW_PLAINTEXT"], found["KAFSCALE_AUTHORIZER"]) == ("true", "none")
    assert found["KAFSCALE_SUPER_USERS"] == "User:c-admin"
    assert "c-broker-tls" in mounts(wanted)
    for service in broker_services.within(wanted):
        assert {"name": "transition", "port": 9096, "targetPort": "transition"} in service["spec"]["ports"]
    policy = network_policy.broker_policy(wanted)
    assert policy is not None
    assert [each["ports"][0]["port"] for each in policy["spec"]["ingress"]] == [9092, 9093, 9095, 9096]


def test_plaintext_beside_a_closed_listener_opens_nothing_else() -> None:
    found = variables(cluster({"protocol": "SASL_SSL", "transition": {"protocol": "PLAINTEXT"}}))
    assert (found["KAFSCALE_ALLOW_PLAINTEXT"], found["KAFSCALE_AUTHORIZER"]) == ("true", "acl")


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("PLAINTEXT", "SASL_SSL", "c-admin"),
        ("PLAINTEXT", "SSL", "c-admin-tls"),
        ("SSL", "SASL_SSL", "c-admin-tls"),
    ],
)
def test_administrator_exists_before_the_protocol_changes(before: str, after: str, name: str) -> None:
    wanted = cluster({"protocol": before, "transition": {"protocol": after}})
    made = admin_user(wanted)
    assert made is not None
    assert made["metadata"]["name"] == name
    assert variables(wanted)["KAFSCALE_SUPER_USERS"].removeprefix("User:").removeprefix("CN=") == name


def test_external_address_is_left_to_the_pod() -> None:
    found = variables(cluster(external={"type": "NodePort", "hostTemplate": "k-{id}.example.com"}))
    assert "EXTERNAL://" not in found["KAFSCALE_ADVERTISED_LISTENERS"]
    assert found["EXTERNAL_LISTENER_HOST"] == "k-$(KAFSCALE_BROKER_ID).example.com"
    assert "KAFSCALE_EXTERNAL_HOST" not in found


def test_administrator_logs_in_as_the_protocol_wants() -> None:
    made = admin_user(cluster({"adminPasswordSecret": "mine"}))
    assert made is not None
    assert (made["metadata"]["name"], made["spec"]["authentication"]) == (
        "c-admin",
        {
            "type": "scram-sha-512",
            "password": {"valueFrom": {"secretKeyRef": {"name": "mine", "key": "password"}}},
        },
    )
    wanted = cluster({"protocol": "SSL", "superUsers": ["User:ops"]})
    made = admin_user(wanted)
    assert made is not None
    assert (made["metadata"]["name"], made["spec"]["authentication"]) == ("c-admin-tls", {"type": "tls"})
    assert variables(wanted)["KAFSCALE_SUPER_USERS"] == "User:CN=c-admin-tls;User:ops"


def test_settings_for_jobs_have_no_secret() -> None:
    data = broker_settings.config_map(cluster({"adminPasswordSecret": "mine", **MUTUAL}))["data"]
    assert not [name for name in data if "PASSWORD" in name]


def test_two_listeners_cannot_share_a_port() -> None:
    with pytest.raises(SpecError, match=r"security.mutualTls.port=9094 is brokers.external.port, too"):
        cluster({"mutualTls": {"port": 9094}}, external={})
    with pytest.raises(SpecError, match=r"security.transition.port=9095 is security.mutualTls.port, too"):
        cluster({"transition": {"protocol": "SASL_SSL", "port": 9095}, "mutualTls": {}})


def live(*names: str) -> dict[str, Any]:
    env = [{"name": name, "value": "x"} for name in names]
    return {"spec": {"template": {"spec": {"containers": [{"env": env}]}}}}


def test_plaintext_brokers_stay_until_a_protocol_is_chosen() -> None:
    with pytest.raises(SpecError, match="set it to PLAINTEXT to go on like this"):
        check_protocol(cluster(), live("KAFSCALE_BROKER_ADDR"))
    check_protocol(cluster({"protocol": "SASL_SSL"}), live("KAFSCALE_BROKER_ADDR"))
    check_protocol(cluster({"protocol": "PLAINTEXT"}), live("KAFSCALE_BROKER_ADDR"))
    check_protocol(cluster(), live("KAFSCALE_LISTENERS"))
    with pytest.raises(SpecError, match=r"security\.protocol is not given"):
        check_protocol(cluster(), live("KAFSCALE_LISTENERS", "KAFSCALE_ALLOW_PLAINTEXT"))
    check_protocol(cluster(), None)


def test_template_changed_by_hand_is_put_right() -> None:
    """Found: a template without variables was taken for one of plaintext brokers, and was left as it was."""
    check_protocol(cluster(), live())


def written(found: ClusterSpec, held: Held, now: datetime = NOW, brokers: int = 3) -> tuple[list[str], Held]:
    """The names of the Secrets that are written, and all of them as they are then."""
    planned = plan_secrets(found, brokers, held, now)
    data = {
        each["metadata"]["name"]: {key: base64.b64decode(text) for key, text in each["data"].items()}
        for each in planned
    }
    return [each["metadata"]["name"] for each in planned], held | data


def test_broker_certificate_is_made_once_and_renewed() -> None:
    names, held = written(cluster(), {})
    assert names == ["c-authority", "c-ca", "c-broker-tls"]
    assert secret_names(cluster()) == ["c-authority", "c-broker-tls", "c-ca"]
    assert KEY not in held["c-ca"]
    leaf = x509.load_pem_x509_certificate(held["c-broker-tls"][CERTIFICATE])
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(held["c-ca"][CA]))
    assert written(cluster(), held)[0] == []
    assert written(cluster(), held, NOW + timedelta(days=250))[0] == ["c-broker-tls"]


def test_external_hosts_are_in_the_certificate() -> None:
    wanted = cluster(external={"hostTemplate": "k-{id}.example.com", "bootstrapHost": "k.example.com"})
    hosts = broker_hosts(wanted, 3)
    assert {"c-bootstrap.shop.svc", "*.c-brokers.shop.svc", "k.example.com", "k-15.example.com"} <= set(hosts)
    assert "k-16.example.com" in broker_hosts(wanted, 17)
    _, held = written(wanted, {})
    assert written(wanted, held, brokers=16)[0] == []
    assert written(wanted, held, brokers=17)[0] == ["c-broker-tls"]


def test_given_certificate_is_left_to_its_maker() -> None:
    wanted = cluster({"certificateSecret": "theirs"})
    assert (secret_names(wanted), plan_secrets(wanted, 3, {}, NOW)) == ([], [])
    assert mounts(wanted) == {"theirs": "/etc/kafscale/tls"}


def test_brokers_trust_the_operators_and_given_authorities() -> None:
    other = new_authority("another", NOW).certificate
    wanted = cluster({**MUTUAL, "clientCaSecret": "others"})
    names, held = written(wanted, {"others": {CA: other}})
    assert names[3:] == ["c-client-authority", "c-client-ca"]
    assert held["c-client-ca"] == {CA: held["c-client-authority"][CERTIFICATE] + other}
    assert written(wanted, held)[0] == []
    assert written(wanted, held | {"others": {CA: b""}})[0] == ["c-client-ca"]
