"""The limit of open files, against a stand-in for the system's."""

import resource

import pytest

from kafscale.ops.open_files import RESERVED_FILES, allow_connections

UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "allowed", "soft_after"),
    [
        (1024, 1_048_576, 10_000, 10_000, 10_000 + RESERVED_FILES),
        (1024, UNLIMITED, 10_000, 10_000, 10_000 + RESERVED_FILES),
        (1024, 4096, 10_000, 4096 - RESERVED_FILES, 4096),
        (1024, 1024, 10_000, 1024 - RESERVED_FILES, 1024),
        (1024, 4096, 100, 100, 1024),
        (100_000, 1_048_576, 10_000, 10_000, 100_000),
        (UNLIMITED, UNLIMITED, 10_000, 10_000, UNLIMITED),
        (100, 100, 10, 1, 100),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed_and_allowed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, allowed: int, soft_after: int
) -> None:
    limits = [soft, hard]

    def set_limit(kind: int, new: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        assert new[1] == hard
        assert soft <= new[0]
        limits[:] = new

    monkeypatch.setattr(resource, "getrlimit", lambda kind: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert allow_connections(wanted) == allowed
    assert limits[0] == soft_after


def test_fewer_connections_than_wanted_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 1024))
    allow_connections(10_000)
    assert "KAFSCALE_MAX_CONNECTIONS" in caplog.text
