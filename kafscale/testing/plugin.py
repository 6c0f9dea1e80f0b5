"""The pytest plugin: the fixtures `kafka`, `kafka_broker`, `kafka_cluster` and `kafka_settings`.

Every run of pytest loads this module where Kafscale is installed: nothing of the broker is imported before a test
asks for one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kafscale.testing import SharedKafka
    from kafscale.testing.broker import KafkaBroker
    from kafscale.testing.cluster import KafkaCluster


@pytest.fixture(scope="session")
def kafka_settings() -> Mapping[str, Any]:
    """The settings of the brokers of all fixtures; override it in a `conftest.py` to change them."""
    return {}


@pytest.fixture(scope="session")
def kafka_session_broker(kafka_settings: Mapping[str, Any]) -> Iterator[KafkaBroker]:
    """The broker behind `kafka`: one for the whole session, for each of xdist's workers its own."""
    from kafscale.testing import KafkaBroker

    with KafkaBroker(**kafka_settings) as broker:
        yield broker


@pytest.fixture
def kafka(kafka_session_broker: KafkaBroker) -> Iterator[SharedKafka]:
    """The session's broker, with topics of the test's own: `kafka.topic()` creates one, which goes with the test."""
    from kafscale.testing import SharedKafka

    shared = SharedKafka(kafka_session_broker)
    yield shared
    shared.close()


@pytest.fixture
def kafka_broker(kafka_settings: Mapping[str, Any]) -> Iterator[KafkaBroker]:
    """A broker for this test alone, to be stopped, killed and troubled."""
    from kafscale.testing import KafkaBroker

    with KafkaBroker(**kafka_settings) as broker:
        yield broker


@pytest.fixture
def kafka_cluster(kafka_settings: Mapping[str, Any]) -> Iterator[Callable[..., KafkaCluster]]:
    """Starts clusters for this test: `kafka_cluster(3)` has three brokers. Keywords are settings."""
    from kafscale.testing import KafkaCluster

    with contextlib.ExitStack() as started:

        def start(size: int = 3, **settings: Any) -> KafkaCluster:
            return started.enter_context(KafkaCluster(size, **{**kafka_settings, **settings}))

        yield start
