"""The operator's passes over a managed etcd: Kubernetes in memory, etcd real, the test in the kubelet's place."""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry

from kafscale.errors import KafscaleError
from kafscale.operator.errors import LeadershipLostError
from kafscale.operator.etcd.conditions import AS_SPECIFIED, GIVE_UP, HEALTHY, SPACE_HEALTHY
from kafscale.operator.etcd.metrics import EtcdMetrics
from kafscale.operator.etcd.reconciler import EtcdReconciler, Place
from kafscale.operator.etcd.upkeep_plan import DefragmentRules
from kafscale.operator.kube.kinds import CLUSTER
from kafscale.operator.manifests import etcd_start
from tests.operator.etcd_clusters import fill, fragmented, lose_data, maintenance, settled
from tests.operator.etcd_kube import NAME, NAMESPACE, EtcdKube
from tests.support.etcd_server import EtcdCluster, EtcdServer, etcd_cluster
from tests.support.waiting import wait_until_async

NAMES = ("c-etcd-0", "c-etcd-1", "c-etcd-2")
QUOTA_BYTES = 16 * 2**20
RULES = DefragmentRules(min_free_bytes=2 * 2**20)
AT_NIGHT = datetime(2026, 3, 4, 3, 20, tzinfo=UTC)  # the schedule says 3:17
BY_DAY = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


class Passes:
    """A reconciler, its cluster and its clock."""

    def __init__(self, etcd: EtcdCluster, **managed: object) -> None:
        self.etcd = etcd
        self.kube = EtcdKube(quotaBytes=QUOTA_BYTES, **managed)
        self.registry = CollectorRegistry()
        self.now = BY_DAY
        self.members = {each.name: each for each in etcd.members}
        self.reconciler = self.new_reconciler(self.registry)

    def new_reconciler(self, registry: CollectorRegistry) -> EtcdReconciler:
        """As another operator process would have it."""
        tokens = itertools.count()
        return EtcdReconciler(
            self.kube,
            "etcd:test",
            EtcdMetrics(registry),
            lambda: self.now,
            lambda: f"token-{next(tokens)}",
            "kafscale-system",
            self.locate,
            RULES,
        )

    def locate(self, cluster: str, namespace: str, members: int) -> list[Place]:
        assert (cluster, namespace) == (NAME, NAMESPACE)
        return [
            Place(name=each.name, client_url=each.endpoint, peer_url=each.peer_url)
            for each in self.etcd.members[:members]
        ]

    async def make(self) -> float:
        """One pass."""
        return await self.reconciler.reconcile(NAMESPACE, NAME)

    async def until(self, kind: str, reason: str) -> str:
        """Passes until a condition has that reason; its message. What fails is tried again, as the operator does."""

        async def is_told() -> bool:
            try:
                await self.make()
            except LeadershipLostError:
                raise
            except KafscaleError:
                return False
            return self.kube.condition(kind)[1] == reason

        await wait_until_async(is_told, f"{kind} is {reason}")
        return self.kube.condition(kind)[2]

    def start_pod(self, member: EtcdServer) -> None:
        """Its container starts, with what the ConfigMap says now."""
        data = self.kube.start()
        known = data[etcd_start.INITIAL_CLUSTER]
        for each in self.etcd.members:
            theirs = etcd_start.peer_url(each.name, NAME, NAMESPACE)
            known = known.replace(f"{each.name}={theirs}", f"{each.name}={each.peer_url}")
        member.flags = (
            *(flag for flag in member.flags if not flag.startswith("--initial")),
            f"--initial-cluster={known}",
            f"--initial-cluster-state={data[etcd_start.INITIAL_CLUSTER_STATE]}",
            f"--initial-cluster-token={data[etcd_start.INITIAL_CLUSTER_TOKEN]}",
        )
        member.begin()
        self.kube.put_pod(member.name, {"running": {}})

    def crash_pod(self, member: EtcdServer) -> None:
        """Its container has ended by itself: Kubernetes keeps the end of its log, and starts it later."""
        assert member.wait_exit(20) != 0
        ended = {"exitCode": 1, "message": member.log_path.read_text()[-2048:]}
        self.kube.put_pod(member.name, {"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": ended})


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    flags = ["--quota-backend-bytes", str(QUOTA_BYTES)]
    with etcd_cluster(tmp_path, flags=flags, names=NAMES) as started:
        yield started


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """For all tests that only look at it."""
    with etcd_cluster(tmp_path_factory.mktemp("etcd"), names=NAMES) as started:
        yield started


@pytest.fixture
async def watched(unharmed: EtcdCluster) -> Passes:
    """A new Kubernetes around a cluster that runs already, and goes on after the test."""
    passes = Passes(unharmed)
    await passes.until(HEALTHY, "AllMembersAnswer")
    return passes


@pytest.fixture
async def formed(etcd: EtcdCluster) -> Passes:
    passes = Passes(etcd)
    await passes.until(HEALTHY, "AllMembersAnswer")
    return passes


async def test_a_cluster_forms_and_is_reported(watched: Passes) -> None:
    kube = watched.kube
    assert kube.names() == {
        ("ConfigMap", "c-etcd-start"),
        ("Service", "c-etcd"),
        ("PodDisruptionBudget", "c-etcd"),
        ("NetworkPolicy", "c-etcd"),
        ("StatefulSet", "c-etcd"),
        *(("Secret", f"c-etcd-{part}") for part in ("authority", "members", "clients")),
    }
    assert kube.start()["phase"] == "Formed"
    assert not any(name in kube.start()[etcd_start.INITIAL_CLUSTER] for name in NAMES)
    assert kube.condition(SPACE_HEALTHY)[:2] == ("True", "EnoughRoom")
    assert kube.condition(AS_SPECIFIED)[:2] == ("True", "CarriedOut")
    leader = watched.etcd.leader().name
    assert kube.condition(HEALTHY)[2] == f"All 3 members answer, {leader} leads."
    labels = {"namespace": NAMESPACE, "cluster": NAME}
    assert watched.registry.get_sample_value("kafscale_etcd_has_majority", labels) == 1
    assert watched.registry.get_sample_value("kafscale_etcd_member_up", labels | {"member": leader}) == 1
    assert watched.registry.get_sample_value("kafscale_etcd_quota_bytes", labels) == QUOTA_BYTES
    before = list(kube.events)
    await watched.make()
    assert kube.events == before  # nothing changed, so no event is recorded
    assert kube.warnings == []


async def test_a_member_without_its_data_is_kept_out_and_then_replaced(formed: Passes) -> None:
    lost = formed.members["c-etcd-1"]
    revision = fill(formed.etcd.members[0], "kept", count=1)
    lost.kill9()
    lose_data(lost)
    formed.start_pod(lost)
    formed.crash_pod(lost)
    await formed.until(HEALTHY, "MemberJoining")
    assert formed.kube.start()["phase"] == "Joining"
    formed.start_pod(lost)
    await formed.until(HEALTHY, "AllMembersAnswer")
    assert formed.kube.start()["phase"] == "Formed"
    seen = await settled(maintenance(formed.etcd))
    assert min(status.revision for status in seen.statuses) >= revision
    reasons = [reason for reason, _ in formed.kube.events]
    assert (
        reasons.index("EtcdMemberTakenOff") < reasons.index("EtcdMemberPutOn") < reasons.index("EtcdJoining")
    )


async def test_a_member_that_is_only_away_is_not_replaced(formed: Passes) -> None:
    away = formed.members["c-etcd-2"]
    ended = {"terminated": {"exitCode": 1, "message": f"... {etcd_start.NO_DATA} ..."}}
    away.kill9()
    # It runs again after such an end, and does not answer for another reason.
    formed.kube.put_pod(away.name, {"running": {}}, ended)
    await formed.until(HEALTHY, "MemberDown")
    await formed.make()
    assert "EtcdMemberTakenOff" not in [reason for reason, _ in formed.kube.events]
    away.start()
    await formed.until(HEALTHY, "AllMembersAnswer")


async def test_total_data_loss_waits_for_an_explicit_abandon(formed: Passes) -> None:
    cluster_id = formed.kube.start()["clusterId"]
    for member in formed.etcd.members:
        member.kill9()
        lose_data(member)
    for member in formed.etcd.members:
        formed.start_pod(member)
    for member in formed.etcd.members:
        formed.crash_pod(member)
    message = await formed.until(HEALTHY, "DataLost")
    assert f"{GIVE_UP}={cluster_id}" in message
    await formed.make()
    assert formed.kube.start()["phase"] == "Formed"
    formed.kube.resource["metadata"]["annotations"][GIVE_UP] = cluster_id
    await formed.until(HEALTHY, "Forming")
    for member in formed.etcd.members:
        formed.start_pod(member)
    await formed.until(HEALTHY, "AllMembersAnswer")
    assert formed.kube.start()["clusterId"] != cluster_id


async def test_one_that_answers_is_not_given_up(watched: Passes) -> None:
    before = watched.kube.start()
    watched.kube.resource["metadata"]["annotations"][GIVE_UP] = before["clusterId"]
    await watched.make()
    assert watched.kube.start() == before


async def test_without_a_majority_nothing_is_done_and_said_so(formed: Passes) -> None:
    for name in NAMES[1:]:
        formed.members[name].kill9()
    message = await formed.until(HEALTHY, "NoMajority")
    assert "1 of 3 members answer" in message
    assert formed.kube.condition(SPACE_HEALTHY)[0] == "Unknown"
    assert formed.kube.start()["phase"] == "Formed"


async def test_members_are_defragmented_one_after_the_other(formed: Passes) -> None:
    keeper = maintenance(formed.etcd)
    before = await fragmented(keeper, formed.etcd, free_bytes=3 * 2**20)
    await formed.make()
    formed.now = AT_NIGHT
    messages: list[str] = []
    while (await formed.make()) < 30 or not messages:
        messages = [message for reason, message in formed.kube.events if reason == "EtcdDefragmenting"]
        await settled(keeper)
    assert sorted(messages) == [f"{name} is defragmented." for name in NAMES]
    after = await settled(keeper)
    assert (
        max(each.size_bytes for each in after.statuses) < min(each.size_bytes for each in before.statuses) / 2
    )
    labels = {"namespace": NAMESPACE, "cluster": NAME, "outcome": "succeeded"}
    assert formed.registry.get_sample_value("kafscale_etcd_defragmentations_total", labels) == 3


async def test_an_operator_that_leads_no_more_defragments_nothing(formed: Passes) -> None:
    keeper = maintenance(formed.etcd)
    before = await fragmented(keeper, formed.etcd, free_bytes=3 * 2**20)
    await formed.make()
    formed.now = AT_NIGHT
    formed.kube.leads = False
    with pytest.raises(LeadershipLostError):
        await formed.make()
    after = await settled(keeper)
    assert [each.size_bytes for each in after.statuses] == [each.size_bytes for each in before.statuses]


async def test_a_used_up_quota_is_reported_and_room_is_made(formed: Passes) -> None:
    await formed.make()
    with pytest.raises(grpc.RpcError, match="database space exceeded"):
        fill(formed.etcd.members[0], "k", count=64)
    message = await formed.until(SPACE_HEALTHY, "NoSpace")
    assert "etcd.managed.quotaBytes" in message
    assert "NoSpace" in formed.kube.warnings

    async def is_over() -> bool:
        formed.now += timedelta(seconds=31)  # what was seen before is settled, and compaction had its time
        await formed.make()
        return formed.kube.condition(SPACE_HEALTHY)[1] == "EnoughRoom"

    await wait_until_async(is_over, "there is room again")
    fill(formed.etcd.members[1], "k", count=1)


async def test_what_cannot_be_changed_is_kept_and_said(watched: Passes) -> None:
    managed = watched.kube.resource["spec"]["etcd"]["managed"]
    managed |= {"members": 5, "storageSize": "16Gi"}
    message = await watched.until(AS_SPECIFIED, "NotCarriedOut")
    assert "etcd.managed.members=5 is not carried out" in message
    assert "keep their size of 8Gi" in message
    spec = watched.kube.etcd_set()["spec"]
    assert spec["replicas"] == 3
    assert spec["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "8Gi"


async def test_members_are_not_upgraded_while_one_is_missing(formed: Passes) -> None:
    formed.members["c-etcd-0"].kill9()
    formed.kube.resource["spec"]["etcd"]["managed"]["image"] = "etcd:newer"
    message = await formed.until(AS_SPECIFIED, "NotCarriedOut")
    assert "not replaced while c-etcd-0 is missed" in message
    assert formed.kube.etcd_set()["spec"]["template"]["spec"]["containers"][0]["image"] == "etcd:test"
    formed.members["c-etcd-0"].start()
    await formed.until(AS_SPECIFIED, "CarriedOut")
    assert formed.kube.etcd_set()["spec"]["template"]["spec"]["containers"][0]["image"] == "etcd:newer"


async def test_a_cluster_that_goes_leaves_no_numbers(watched: Passes) -> None:
    watched.kube.remove(CLUSTER, NAME)
    await watched.make()
    labels = {"namespace": NAMESPACE, "cluster": NAME}
    assert watched.registry.get_sample_value("kafscale_etcd_has_majority", labels) is None


async def test_an_etcd_that_is_no_longer_managed_is_left_alone(watched: Passes) -> None:
    before = watched.kube.names()
    watched.kube.resource["spec"]["etcd"] = {"endpoints": ["http://elsewhere:2379"]}
    await watched.make()
    assert watched.kube.names() == before
    assert watched.kube.condition(HEALTHY) == ("", "", "")
