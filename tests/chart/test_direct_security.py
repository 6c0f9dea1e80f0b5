"""Certificates, password and administrator of brokers that the chart itself runs."""

import base64
import itertools
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from kafscale.operator.cluster_spec import cluster_spec
from kafscale.operator.clusters.certificates import broker_hosts
from kafscale.operator.manifests.admin_user import admin_user
from kafscale.settings.broker import load_settings, unknown_settings
from tests.chart.test_direct_cluster import LEAST, NAME, NAMESPACE, direct, with_brokers
from tests.support.helm import HelmError, Manifest, of_kind, only
from tests.support.k8s_install import helm_missing

pytestmark = pytest.mark.skipif(helm_missing() is not None, reason=str(helm_missing()))


def secrets(manifests: list[Manifest]) -> dict[str, dict[str, bytes]]:
    return {
        each["metadata"]["name"]: {key: base64.b64decode(text) for key, text in each["data"].items()}
        for each in of_kind(manifests, "Secret")
    }


def secured(**parts: Any) -> dict[str, Any]:
    return {**LEAST, "security": parts}


def test_certificate_names_the_hosts_that_the_operator_would(tmp_path: Path) -> None:
    spec = with_brokers(external={"hostTemplate": "k-{id}.example.com", "bootstrapHost": "k.example.com"})
    found = secrets(direct(tmp_path, spec))
    assert set(found) == {"orders-authority", "orders-ca", "orders-broker-tls", "orders-admin"}
    assert set(found["orders-ca"]) == {"ca.crt"}
    leaf = x509.load_pem_x509_certificate(found["orders-broker-tls"]["tls.crt"])
    leaf.verify_directly_issued_by(x509.load_pem_x509_certificate(found["orders-ca"]["ca.crt"]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    assert known == set(broker_hosts(cluster_spec(NAME, NAMESPACE, spec), 2))


def test_administrator_is_the_operators(tmp_path: Path) -> None:
    manifests = direct(tmp_path, LEAST)
    user = admin_user(cluster_spec(NAME, NAMESPACE, LEAST))
    assert user is not None
    found = secrets(manifests)[user["metadata"]["name"]]
    assert len(found["password"]) == 32
    assert (
        found["sasl.jaas.config"]
        .decode()
        .endswith(f'username="orders-admin" password="{found["password"].decode()}";')
    )
    job = only(manifests, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert job["metadata"]["name"].startswith("orders-admin-")
    assert container["command"][-1] == "orders-admin"
    assert found["password"].decode() not in str(
        of_kind(manifests, "Job") + of_kind(manifests, "StatefulSet")
    )


def test_given_secrets_are_used_and_none_are_made(tmp_path: Path) -> None:
    manifests = direct(tmp_path, secured(certificateSecret="cert", adminPasswordSecret="mine"))
    assert secrets(manifests) == {}
    volumes = only(manifests, "Job")["spec"]["template"]["spec"]["volumes"]
    assert [each["secret"]["secretName"] for each in volumes if "secret" in each] == ["mine"]


def test_plaintext_has_neither_secrets_nor_administrator(tmp_path: Path) -> None:
    manifests = direct(tmp_path, secured(protocol="PLAINTEXT"))
    assert secrets(manifests) == {}
    assert of_kind(manifests, "Job") == []


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT"])
def test_settings_are_legal_together(tmp_path: Path, protocol: str) -> None:
    spec = {
        **with_brokers(external={"hostTemplate": "k-{id}.example.com"}),
        "security": {"protocol": protocol},
    }
    manifests = direct(tmp_path, spec)
    (container,) = only(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    for reference, value in itertools.product(
        environment, [("$(POD_NAME)", "p"), ("$(KAFSCALE_BROKER_ID)", "0")]
    ):
        environment[reference] = environment[reference].replace(*value)
    assert unknown_settings(environment) == []
    settings = load_settings(environment)
    assert settings.allow_plaintext == (protocol == "PLAINTEXT")


@pytest.mark.parametrize(
    ("security", "words"),
    [
        ({"protocol": "SSL"}, "/spec/security/protocol"),
        ({"mutualTls": {}}, "mutualTls"),
        ({"clientCaSecret": "c"}, "clientCaSecret"),
        ({"protocol": "PLAINTEXT", "authorizer": "acl"}, "not for the protocol PLAINTEXT"),
        ({"superUsers": ["ops"]}, "superUsers"),
        ({"transition": {"protocol": "SASL_SSL"}}, "transition needs protocol"),
        ({"protocol": "PLAINTEXT", "transition": {}}, "missing property 'protocol'"),
        ({"protocol": "PLAINTEXT", "transition": {"protocol": "SSL"}}, "transition/protocol"),
        (
            {"protocol": "PLAINTEXT", "transition": {"protocol": "SASL_SSL", "port": 9092}},
            "brokers listen there already",
        ),
    ],
)
def test_impossible_security_is_refused(tmp_path: Path, security: dict[str, Any], words: str) -> None:
    with pytest.raises(HelmError) as refused:
        direct(tmp_path, secured(**security))
    assert words in str(refused.value)
