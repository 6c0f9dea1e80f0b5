"""The operator's door to Kubernetes: what is sent, and what an answer means."""

import asyncio
from typing import Any

import pytest

from kafscale.operator.errors import KubeRefusedError, KubeUnreachableError, LeadershipLostError
from kafscale.operator.kube.client import KubeClient
from kafscale.operator.kube.kinds import CLUSTER, CLUSTER_ROLE_BINDING, CONFIG_MAP, EVENT, kind_of
from tests.operator.fake_kubernetes import Answer, Call, access_to, refusal, serving
from tests.support.ports import free_port

MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "m", "namespace": "ns"},
    "data": {"a": "1"},
}


async def test_an_apply_names_its_manager_and_comes_with_the_token() -> None:
    async with serving(lambda _: (200, {"done": True})) as (access, calls), KubeClient(access) as kube:
        assert await kube.apply(MAP, field_manager="me") == {"done": True}
    (call,) = calls
    assert (call.method, call.path) == ("PATCH", "/api/v1/namespaces/ns/configmaps/m")
    assert call.query == {"fieldManager": "me", "force": "true"}
    assert call.headers["content-type"] == "application/apply-patch+yaml"
    assert call.headers["authorization"] == "Bearer secret"
    assert call.body == MAP


async def test_a_status_is_applied_by_itself() -> None:
    async with serving(lambda _: (200, {})) as (access, calls), KubeClient(access) as kube:
        await kube.apply_status(CLUSTER, "ns", "c", {"phase": "Ready"}, field_manager="me")
    assert calls[0].path == "/apis/kafscale.io/v1alpha1/namespaces/ns/kafscaleclusters/c/status"
    assert calls[0].body["status"] == {"phase": "Ready"}


async def test_a_list_gives_each_its_kind_in_order() -> None:
    items = [{"metadata": {"name": name, "namespace": "ns"}} for name in ("b", "a")]
    async with serving(lambda _: (200, {"items": items})) as (access, calls), KubeClient(access) as kube:
        found = await kube.list(CONFIG_MAP, "ns", {"x": "1", "y": "2"})
    assert [(each["kind"], each["metadata"]["name"]) for each in found] == [
        ("ConfigMap", "a"),
        ("ConfigMap", "b"),
    ]
    assert calls[0].query == {"labelSelector": "x=1,y=2"}


async def test_what_is_not_there_is_none_and_gone_already() -> None:
    async with serving(lambda _: refusal(404, "NotFound")) as (access, _), KubeClient(access) as kube:
        assert await kube.find(CONFIG_MAP, "ns", "m") is None
        assert await kube.delete(CONFIG_MAP, "ns", "m") is False
        with pytest.raises(KubeRefusedError, match="404 NotFound"):
            await kube.get(CONFIG_MAP, "ns", "m")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusal(409, "Conflict"), "Conflict"),
        (refusal(422, "Invalid"), "Invalid"),
        (refusal(403, "Forbidden"), "Forbidden"),
        ((404, "404 page not found"), "Not Found"),
        (refusal(500, "", "failed to convert new object (ns/m) to proper version: bad"), "Invalid"),
    ],
)
async def test_a_refusal_is_known_to_have_done_nothing(answer: Answer, reason: str) -> None:
    async with serving(lambda _: answer) as (access, _), KubeClient(access) as kube:
        with pytest.raises(KubeRefusedError) as refused:
            await kube.apply(MAP)
    assert refused.value.reason == reason


@pytest.mark.parametrize("answer", [refusal(500, "InternalError"), (503, "busy"), (200, "<html>"), (502, "")])
async def test_a_server_in_trouble_may_have_done_it(answer: Answer) -> None:
    async with serving(lambda _: answer) as (access, _), KubeClient(access) as kube:
        with pytest.raises(KubeUnreachableError):
            await kube.apply(MAP)


async def test_no_answer_may_mean_anything() -> None:
    access = access_to(f"http://127.0.0.1:{free_port()}")
    async with KubeClient(access) as kube:
        with pytest.raises(KubeUnreachableError, match="GET /api/v1/namespaces/ns/configmaps/m"):
            await kube.get(CONFIG_MAP, "ns", "m")


async def test_who_may_not_write_reads_on() -> None:
    async with serving(lambda _: (200, {})) as (access, calls), KubeClient(access) as kube:
        guarded = kube.guarded(lambda: False)
        assert await guarded.get(CONFIG_MAP, "ns", "m") == {}
        for write in (guarded.apply(MAP), guarded.create(MAP), guarded.delete(CONFIG_MAP, "ns", "m")):
            with pytest.raises(LeadershipLostError):
                await write
    assert [call.method for call in calls] == ["GET"]


async def test_the_same_event_again_raises_its_count() -> None:
    stored: dict[str, Any] = {}

    def respond(call: Call) -> Answer:
        if call.method == "POST":
            if call.body["metadata"]["name"] in stored:
                return refusal(409, "AlreadyExists")
            stored[call.body["metadata"]["name"]] = call.body
            return 201, call.body
        name = call.path.rpartition("/")[2]
        if call.method == "PATCH":
            stored[name] |= call.body
        return 200, stored[name]

    about = {
        "apiVersion": CLUSTER.api_version,
        "kind": CLUSTER.kind,
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
    }
    async with serving(respond) as (access, _), KubeClient(access) as kube:
        for _ in range(3):
            await kube.event(about, "PodsFail", "One is gone.", warning=True)
        await kube.event(about, "PodsFail", "Two are gone.", warning=True)
    assert sorted(each["count"] for each in stored.values()) == [1, 3]
    assert {each["type"] for each in stored.values()} == {"Warning"}
    assert all(each["involvedObject"]["uid"] == "u" for each in stored.values())


async def test_an_event_that_is_refused_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    about = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
    }
    caplog.set_level("INFO", logger="kafscale")
    async with serving(lambda _: refusal(403, "Forbidden")) as (access, _), KubeClient(access) as kube:
        await kube.event(about, "PodsFail", "One is gone.", warning=True)
    assert "PodsFail One is gone." in caplog.text


async def test_a_token_that_is_renewed_is_read_again(tmp_path: Any) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with serving(lambda _: (200, {})) as (access, calls):
        own = access_to(access.server, token_file=file)
        async with KubeClient(own) as kube:
            await kube.get(CONFIG_MAP, "ns", "m")
            await asyncio.to_thread(file.write_text, "second\n")
            await kube.get(CONFIG_MAP, "ns", "m")
    assert [call.headers["authorization"] for call in calls] == ["Bearer first", "Bearer second"]


def test_where_the_api_has_things() -> None:
    assert kind_of("v1", "Event") is EVENT
    assert CLUSTER.path(None) == "/apis/kafscale.io/v1alpha1/kafscaleclusters"
    assert CLUSTER_ROLE_BINDING.path("ns", "x").endswith("/v1/clusterrolebindings/x")
    with pytest.raises(LookupError, match="Gateway"):
        kind_of("v1", "Gateway")
