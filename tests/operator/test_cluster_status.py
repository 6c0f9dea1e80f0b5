"""A cluster's status by what is seen."""

from typing import Any

import pytest

from kafscale.operator.cluster_spec import ClusterSpec, cluster_spec
from kafscale.operator.clusters.status import ClusterStatus, Seen, healths, judge, pod_problems, refused
from kafscale.operator.conditions import Condition


def cluster(**brokers: Any) -> ClusterSpec:
    spec = {
        "brokers": brokers or {"replicas": 3},
        "s3": {"bucket": "b"},
        "etcd": {"endpoints": ["http://e:2379"]},
    }
    return cluster_spec("c", "ns", spec)


def brokers(there: int, ready: int, *, updated: int | None = None, generation: int = 1) -> dict[str, Any]:
    """A StatefulSet; `updated` None: no roll-out."""
    status: dict[str, Any] = {"observedGeneration": 1, "replicas": there, "readyReplicas": ready}
    if updated is None:
        status |= {
            "currentRevision": "a",
            "updateRevision": "a",
            "updatedReplicas": there,
            "currentReplicas": there,
        }
    else:
        status |= {"currentRevision": "a", "updateRevision": "b", "updatedReplicas": updated}
    return {"metadata": {"generation": generation}, "spec": {"replicas": there}, "status": status}


def told(**known: bool) -> list[dict[str, str]]:
    return [{"type": kind, "status": str(is_so)} for kind, is_so in known.items()]


def condition(status: ClusterStatus, kind: str) -> Condition:
    return next(each for each in status.conditions if each.type == kind)


SETTLED = told(Progressing=False, Ready=True)


@pytest.mark.parametrize(
    ("seen", "phase", "ready"),
    [
        (Seen(wanted=3, broker_set=None, waits_for="etcd"), "Pending", False),
        (Seen(wanted=3, broker_set=brokers(0, 0, generation=2)), "Progressing", False),
        (Seen(wanted=3, broker_set=brokers(3, 2)), "Progressing", False),
        (Seen(wanted=3, broker_set=brokers(3, 3)), "Ready", True),
        (Seen(wanted=3, broker_set=brokers(3, 3, generation=2)), "Progressing", False),
        (Seen(wanted=3, broker_set=brokers(3, 3, updated=1)), "Progressing", False),
        (
            Seen(wanted=3, broker_set=brokers(3, 2, updated=3), before=told(Progressing=True)),
            "Progressing",
            False,
        ),
        (Seen(wanted=3, broker_set=brokers(3, 2), before=SETTLED), "Degraded", False),
        (Seen(wanted=3, broker_set=brokers(3, 2, updated=1), problems=["c-2: no"]), "Degraded", False),
        (Seen(wanted=5, broker_set=brokers(3, 3), before=SETTLED), "Progressing", False),
        (Seen(wanted=0, broker_set=brokers(2, 0), before=SETTLED), "Progressing", False),
        (Seen(wanted=0, broker_set=brokers(0, 0)), "Stopped", False),
        (Seen(wanted=3, broker_set=brokers(3, 3), before=told(EtcdHealthy=False)), "Degraded", True),
        (Seen(wanted=3, broker_set=brokers(3, 3), before=told(BackupFresh=False)), "Ready", True),
    ],
)
def test_the_phase_is_the_conditions_in_one_word(seen: Seen, phase: str, ready: bool) -> None:
    status = judge(cluster(), seen)
    assert status.phase == phase
    assert condition(status, "Ready").is_so is ready
    assert condition(status, "Accepted").is_so is True


def test_it_says_what_is_wrong() -> None:
    seen = Seen(
        wanted=3, broker_set=brokers(3, 2), problems=["c-broker-2: ImagePullBackOff: no"], before=SETTLED
    )
    ready = condition(judge(cluster(), seen), "Ready")
    assert ready.reason == "PodsFail"
    assert ready.message == "2 of 3 brokers are ready. c-broker-2: ImagePullBackOff: no."


def test_where_clients_begin() -> None:
    seen = Seen(wanted=3, broker_set=brokers(3, 3))
    assert judge(cluster(), seen).numbers["bootstrapServers"] == "c-bootstrap.ns.svc:9092"
    assert "externalBootstrapServers" not in judge(cluster(), seen).numbers
    balanced = cluster(replicas=3, external={"port": 9095})
    assert "externalBootstrapServers" not in judge(balanced, seen).numbers, "nobody knows it yet"
    service = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}}
    found = judge(balanced, Seen(wanted=3, broker_set=brokers(3, 3), external=service))
    assert found.numbers["externalBootstrapServers"] == "203.0.113.7:9095"


def test_external_clients_use_node_port_without_load_balancer() -> None:
    ported = cluster(replicas=3, external={"type": "NodePort", "bootstrapHost": "k.example.com"})
    seen = Seen(wanted=3, broker_set=brokers(3, 3))
    assert "externalBootstrapServers" not in judge(ported, seen).numbers, "it has no port yet"
    service = {"spec": {"ports": [{"port": 9094, "nodePort": 31234}]}}
    seen = Seen(wanted=3, broker_set=brokers(3, 3), external=service)
    assert judge(ported, seen).numbers["externalBootstrapServers"] == "k.example.com:31234"
    nameless = cluster(replicas=3, external={"type": "NodePort"})
    assert "externalBootstrapServers" not in judge(nameless, seen).numbers


def test_that_nothing_is_being_changed_is_no_warning() -> None:
    seen = Seen(wanted=3, broker_set=brokers(3, 2), before=told(Progressing=False))
    degraded = judge(cluster(), seen)
    assert degraded.phase == "Degraded"
    assert degraded.is_warning(condition(degraded, "Ready"))
    assert not degraded.is_warning(condition(degraded, "Progressing"))
    assert not degraded.is_warning(condition(degraded, "Accepted"))


def test_every_event_of_a_refused_specification_warns() -> None:
    """They have one reason, by which they are looked for."""
    status = refused("InvalidSpec", "config.x=1 is not legal", {}, None)
    assert all(status.is_warning(each) for each in status.conditions)


def test_an_autoscaler_that_does_nothing_is_reported() -> None:
    scaled = cluster(autoscaling={"maxReplicas": 9})
    seen = Seen(wanted=3, broker_set=brokers(3, 3))
    assert condition(judge(scaled, seen), "Autoscaling").is_so is None
    failing = {
        "type": "ScalingActive",
        "status": "False",
        "reason": "FailedGetResourceMetric",
        "message": "none",
    }
    seen = Seen(wanted=3, broker_set=brokers(3, 3), autoscaler={"status": {"conditions": [failing]}})
    found = condition(judge(scaled, seen), "Autoscaling")
    assert (found.is_so, found.reason, found.message) == (False, "FailedGetResourceMetric", "none")


def test_a_refused_specification_is_no_progress() -> None:
    status = refused("InvalidSpec", "config.x=1 is not legal", {}, None)
    assert status.phase == "Failed"
    assert [each.is_so for each in status.conditions] == [False, False, False]
    assert status.numbers == {}


def test_refused_spec_keeps_the_status_readable() -> None:
    """Found: a typing error took away where clients begin, and the selector without which no autoscaler works."""
    before = judge(cluster(), Seen(wanted=3, broker_set=brokers(3, 3))).numbers
    status = refused("InvalidSpec", "config.x=1 is not legal", before, brokers(3, 2))
    assert status.numbers == {**before, "readyReplicas": 2}


def test_only_health_is_read_from_another_parts_status() -> None:
    status = {"phase": "Ready", "conditions": told(Ready=True, EtcdHealthy=False)}
    assert healths({"status": status}) == {"EtcdHealthy": "False"}
    assert healths({}) == {}


def pod(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": status}


def test_only_what_does_not_pass_by_itself_is_a_problem() -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "s3" not found'}
    pods = [
        pod("starting", containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}]),
        pod("running", containerStatuses=[{"state": {"running": {}}}]),
        pod("secretless", containerStatuses=[{"state": {"waiting": waiting}}]),
        pod(
            "crashing",
            containerStatuses=[
                {
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 2}},
                }
            ],
        ),
        pod("homeless", conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]),
    ]
    assert pod_problems(pods) == [
        'secretless: CreateContainerConfigError: secret "s3" not found',
        "crashing: CrashLoopBackOff (exit code 2)",
        "homeless: Unschedulable: 0/3 nodes",
    ]
    pods[2]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert len(pod_problems(pods)) == 2
