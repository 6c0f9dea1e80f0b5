"""When a replica that failed is asked again: pauses that grow, one question at a time."""

from kafscale.objects.replica_pauses import PausePolicy, ReplicaPauses

POLICY = PausePolicy(first_ms=100, last_ms=1_000)


def paused(now_ms: int = 0) -> ReplicaPauses:
    pauses = ReplicaPauses(POLICY)
    assert pauses.failed(now_ms, now_ms, 1.0)
    return pauses


def test_a_replica_is_read_from_until_it_fails() -> None:
    pauses = ReplicaPauses(POLICY)
    assert not pauses.is_passed_over
    assert not pauses.ask(10**9)
    assert pauses.failed(10, 20, 1.0)
    assert pauses.is_passed_over


def test_it_is_asked_once_the_pause_is_over_and_by_one_at_a_time() -> None:
    pauses = paused()
    assert not pauses.ask(99)
    assert pauses.ask(100)
    assert not pauses.ask(10_000)
    assert pauses.is_passed_over
    pauses.answered(10_000)
    assert not pauses.is_passed_over


def test_pauses_grow_up_to_the_longest() -> None:
    pauses, now_ms = paused(), 0
    for pause_ms in (100, 200, 400, 800, 1_000, 1_000):
        assert not pauses.ask(now_ms + pause_ms - 1)
        now_ms += pause_ms
        assert pauses.ask(now_ms)
        pauses.silent(now_ms, 1.0)


def test_pauses_are_as_much_longer_or_shorter_as_the_jitter_says() -> None:
    pauses = ReplicaPauses(POLICY)
    pauses.failed(0, 0, 0.5)
    assert not pauses.ask(49)
    assert pauses.ask(50)
    pauses.silent(50, 1.25)
    assert not pauses.ask(50 + 249)
    assert pauses.ask(50 + 250)


def test_reads_in_flight_that_fail_as_well_are_no_news() -> None:
    pauses = paused(50)
    assert not pauses.failed(40, 60, 1.0)
    assert pauses.ask(150)
    pauses.answered(160)
    assert not pauses.failed(40, 170, 1.0)  # began before the pause, ends after it
    assert not pauses.is_passed_over
    assert pauses.failed(165, 171, 1.0)


def test_relapse_goes_on_with_longer_pauses_unless_it_is_late() -> None:
    pauses = paused()
    assert pauses.ask(100)
    pauses.answered(100)
    assert pauses.failed(101, 102, 1.0)
    assert not pauses.ask(102 + 199)
    assert pauses.ask(102 + 200)
    pauses.answered(302)
    assert pauses.failed(302 + 1_001, 302 + 1_001, 1.0)
    assert pauses.ask(302 + 1_001 + 100)
