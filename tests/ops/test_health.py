"""Readiness and liveness, each with the reasons for a no."""

from kafscale.ops.health import STARTING, STOPPING, Health


def test_a_broker_is_alive_but_not_ready_until_it_says_so() -> None:
    health = Health()
    assert health.liveness_problems() == {}
    assert health.readiness_problems() == {"broker": STARTING}
    health.set_ready()
    assert health.readiness_problems() == {}
    health.set_not_ready()
    assert health.readiness_problems() == {"broker": STOPPING}
    assert health.liveness_problems() == {}


def test_each_failing_check_gives_its_reason() -> None:
    health = Health()
    health.set_ready()
    reasons: dict[str, str | None] = {"object store": None, "metadata store": "no answer for 3 s"}
    for name in reasons:
        health.add_check(name, lambda name=name: reasons[name])  # type: ignore[misc]
    assert health.readiness_problems() == {"metadata store": "no answer for 3 s"}
    reasons["object store"] = "503"
    assert health.readiness_problems() == reasons
    reasons |= {"object store": None, "metadata store": None}
    assert health.readiness_problems() == {}


def test_liveness_and_readiness_are_apart() -> None:
    health = Health()
    health.set_ready()
    health.add_liveness_check("event loop", lambda: "hung")
    assert health.liveness_problems() == {"event loop": "hung"}
    assert health.readiness_problems() == {}


def test_a_warning_is_shown_and_leaves_the_readiness_as_it_is() -> None:
    health = Health()
    health.set_ready()
    warnings: dict[str, str | None] = {"object_store": None}
    health.add_warning("object_store", lambda: warnings["object_store"])
    assert health.warnings() == {}
    warnings["object_store"] = "DEGRADED"
    assert health.warnings() == warnings
    assert health.readiness_problems() == {}
