"""How long the metadata store has been silent, and whether that may have cost other brokers their leases."""

from kafscale.metadata.store_contact import SETTLING_MS, StoreContact

TTL_MS = 4_000


class Scene:
    def __init__(self) -> None:
        self.ms = 50_000
        self.contact = StoreContact(TTL_MS, lambda: self.ms)

    def is_lost(self) -> bool:
        return self.contact.is_lost

    def was_interrupted(self) -> bool:
        return self.contact.was_interrupted

    def ask(self, *, takes_ms: int = 0) -> None:
        asked_ms = self.contact.now_ms()
        self.ms += takes_ms
        self.contact.answered(asked_ms)


def test_store_that_answers_renewals_is_never_silent() -> None:
    scene = Scene()
    for _ in range(20):
        scene.ms += TTL_MS // 4
        scene.ask(takes_ms=50)
        assert (scene.contact.silent_ms, scene.is_lost()) == (50, False)
        assert not scene.was_interrupted()


def test_contact_is_lost_after_a_lease_without_an_answer() -> None:
    scene = Scene()
    scene.ms += TTL_MS - 1
    assert not scene.is_lost()
    scene.ms += 1
    assert scene.is_lost()
    scene.ask()
    assert not scene.is_lost()


def test_answer_counts_from_when_it_was_asked_for() -> None:
    """The answer may be as old as the question."""
    scene = Scene()
    scene.ask(takes_ms=TTL_MS)
    assert scene.is_lost()
    late = scene.contact.now_ms() - 100
    scene.ask()
    scene.contact.answered(late)
    assert scene.contact.silent_ms == 0


def test_interruption_is_remembered_until_leases_have_settled() -> None:
    scene = Scene()
    scene.ms += TTL_MS // 2 - 1
    assert not scene.was_interrupted()
    scene.ms += 1
    assert scene.was_interrupted()
    scene.ask()
    ended_ms = scene.ms
    while scene.ms < ended_ms + TTL_MS + SETTLING_MS:
        assert scene.was_interrupted()
        scene.ms += TTL_MS // 4
        scene.ask()
    assert not scene.was_interrupted()
