"""The managed etcd's objects."""

import pytest

from kafscale.operator.cluster_spec import ClusterSpec, ManagedEtcd
from kafscale.operator.errors import SpecError
from kafscale.operator.manifests import broker_settings, etcd_set, etcd_start, network_policy
from kafscale.operator.manifests.etcd_start import EtcdStart, StartPhase
from tests.operator.clusters import cluster_with_etcd

START = EtcdStart(phase=StartPhase.FORMING, members=3, token="t")


def managed(cluster: ClusterSpec) -> ManagedEtcd:
    assert cluster.etcd.managed is not None
    return cluster.etcd.managed


def flags(cluster: ClusterSpec) -> dict[str, str]:
    pod = etcd_set.etcd_set(cluster, managed(cluster), "etcd:1", 3)["spec"]["template"]["spec"]
    given = (each.removeprefix("--").partition("=") for each in pod["containers"][0]["args"])
    return {name: value or "true" for name, _, value in given}


def test_members_and_brokers_use_the_same_etcd_names() -> None:
    cluster = cluster_with_etcd("c")
    data = etcd_start.start_map(cluster, START)["data"]
    listed = dict(each.split("=", 1) for each in data[etcd_start.INITIAL_CLUSTER].split(","))
    pods = etcd_start.member_names("c", 3)
    assert list(listed) == pods
    own = flags(cluster)
    assert listed == {name: own["initial-advertise-peer-urls"].replace("$(POD_NAME)", name) for name in pods}
    assert broker_settings.etcd_endpoints(cluster) == [
        own["advertise-client-urls"].replace("$(POD_NAME)", name) for name in pods
    ]


def test_formed_cluster_names_no_member_to_those_without_data() -> None:
    cluster = cluster_with_etcd("c")
    formed = EtcdStart(phase=StartPhase.FORMED, members=3, token="t", cluster_id="c1")
    data = etcd_start.start_map(cluster, formed)["data"]
    assert "c-etcd" not in data[etcd_start.INITIAL_CLUSTER]
    assert data[etcd_start.INITIAL_CLUSTER_STATE] == "existing"


def test_only_the_member_that_joins_finds_its_name() -> None:
    cluster = cluster_with_etcd("c")
    joining = EtcdStart(phase=StartPhase.JOINING, members=3, token="t", cluster_id="c1", joining="c-etcd-1")
    data = etcd_start.start_map(cluster, joining)["data"]
    everybody = etcd_start.start_map(cluster, START)["data"][etcd_start.INITIAL_CLUSTER]
    names, urls = zip(*(each.split("=") for each in data[etcd_start.INITIAL_CLUSTER].split(",")), strict=True)
    assert set(names) & set(etcd_start.member_names("c", 3)) == {"c-etcd-1"}
    assert list(urls) == [each.split("=")[1] for each in everybody.split(",")]


@pytest.mark.parametrize("phase", StartPhase)
@pytest.mark.parametrize("cluster_id", [None, "c1"])
def test_what_is_kept_is_read_as_it_was_written(phase: StartPhase, cluster_id: str | None) -> None:
    joining = "c-etcd-1" if phase is StartPhase.JOINING else None
    start = EtcdStart(phase=phase, members=5, token="t", cluster_id=cluster_id, joining=joining)
    found = etcd_start.start_map(cluster_with_etcd("c"), start)
    assert etcd_start.read_start(found["metadata"]["name"], found["data"]) == start


@pytest.mark.parametrize("change", [{"phase": "Other"}, {"members": "many"}, {"initialClusterToken": None}])
def test_a_manifest_of_another_writer_is_refused_by_name(change: dict[str, str | None]) -> None:
    data = etcd_start.start_map(cluster_with_etcd("c"), START)["data"] | change
    left = {name: value for name, value in data.items() if value is not None}
    with pytest.raises(SpecError, match="the ConfigMap c-etcd-start was changed"):
        etcd_start.read_start("c-etcd-start", left)


def test_the_specification_is_in_the_flags_and_the_volumes() -> None:
    cluster = cluster_with_etcd(
        "c", quotaBytes=2**30, autoCompactionRetention="5m", storageSize="20Gi", storageClassName="fast"
    )
    own = flags(cluster)
    assert (own["quota-backend-bytes"], own["auto-compaction-retention"]) == ("1073741824", "300000ms")
    volume = etcd_set.etcd_set(cluster, managed(cluster), "etcd:1", 3)["spec"]["volumeClaimTemplates"][0][
        "spec"
    ]
    assert (volume["resources"]["requests"]["storage"], volume["storageClassName"]) == ("20Gi", "fast")


def test_volumes_stay_after_the_cluster() -> None:
    cluster = cluster_with_etcd("c")
    spec = etcd_set.etcd_set(cluster, managed(cluster), "etcd:1", 3)["spec"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_alarm_neither_kills_nor_delays_replacement_of_member() -> None:
    cluster = cluster_with_etcd("c")
    (container,) = etcd_set.etcd_set(cluster, managed(cluster), "etcd:1", 3)["spec"]["template"]["spec"][
        "containers"
    ]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        assert path.startswith("/health?")
        assert "exclude=NOSPACE" in path
        # Whether there is a majority is no reason to restart one that could be part of it.
        assert ("serializable=true" in path) is (probe != "readinessProbe")


def test_only_the_clusters_own_pods_and_the_operator_are_let_in() -> None:
    spec = network_policy.etcd_network_policy(cluster_with_etcd("c"), "kafscale-system")["spec"]
    rules = {rule["ports"][0]["port"]: rule.get("from") for rule in spec["ingress"]}
    own, operator = rules[2379]
    assert own == {
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "kafscale", "app.kubernetes.io/instance": "c"}
        }
    }
    assert operator["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "operator"
    assert operator["namespaceSelector"] == {
        "matchLabels": {"kubernetes.io/metadata.name": "kafscale-system"}
    }
    assert [each["podSelector"] for each in rules[2380]] == [spec["podSelector"]]
