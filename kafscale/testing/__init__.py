"""Kafka brokers for tests: in memory, in the test's own process, in milliseconds.

    from kafscale.testing import KafkaBroker

    with KafkaBroker() as broker:
        broker.create_topic("orders", partitions=3)
        broker.produce("orders", b"one")
        ...  # any Kafka client, with broker.bootstrap as its bootstrap.servers
        assert [record.value for record in broker.records("orders")] == [b"one"]

The pytest plugin (`kafscale.testing.plugin`) has the fixtures `kafka`, `kafka_broker` and `kafka_cluster`.
"""

# The plugin is in this package and loaded by every run of pytest: nothing else is imported before it is asked for.
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafscale.testing.broker import KafkaBroker as KafkaBroker
    from kafscale.testing.cluster import KafkaCluster as KafkaCluster
    from kafscale.testing.records import Record as Record
    from kafscale.testing.records import RecordMetadata as RecordMetadata
    from kafscale.testing.requests import RequestError as RequestError
    from kafscale.testing.shared import SharedKafka as SharedKafka

_MODULES = {
    "KafkaBroker": "broker",
    "KafkaCluster": "cluster",
    "Record": "records",
    "RecordMetadata": "records",
    "RequestError": "requests",
    "SharedKafka": "shared",
}

__all__ = ["KafkaBroker", "KafkaCluster", "Record", "RecordMetadata", "RequestError", "SharedKafka"]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(_imported(f"{__name__}.{module}"), name)
    return found


def _imported(module: str) -> Any:
    """Import the broker as it is.

    pytest rewrites the assertions of every module of a distribution with a plugin. The broker is no test: to
    compile it that way takes many times as long as to import it.
    """
    import sys
    import warnings
    from importlib import import_module

    rewriting = [finder for finder in sys.meta_path if type(finder).__module__ == "_pytest.assertion.rewrite"]
    for finder in rewriting:
        sys.meta_path.remove(finder)
    try:
        with warnings.catch_warnings():
            # kafka-python reads its schemas in a way that Python 3.11 warns of; tests often make errors of warnings.
            warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
            return import_module(module)
    finally:
        sys.meta_path[:0] = rewriting


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
