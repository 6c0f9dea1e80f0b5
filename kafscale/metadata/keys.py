"""Every key of the metadata store, relative to the cluster's prefix. Layout: docs/format/metadata.md."""

CLUSTER = "cluster"
PRODUCER_IDS = "producer-ids"

BROKERS = "brokers/"
TOPICS = "topics/"
RETIRED = "retired/"
PARTITIONS = "partitions/"
LEADERS = "leaders/"


def broker(broker_id: int) -> str:
    """A live broker's registration; bound to its lease."""
    return f"{BROKERS}{broker_id}"


def topic(name: str) -> str:
    """A topic's record."""
    return f"{TOPICS}{name}"


def retired(name: str) -> str:
    """The highest leader epoch that a deleted topic of this name ever had."""
    return f"{RETIRED}{name}"


def partitions(topic_name: str) -> str:
    """The prefix of a topic's partition records. `/` is not legal in a topic name."""
    return f"{PARTITIONS}{topic_name}/"


def partition(topic_name: str, index: int) -> str:
    """A partition's record."""
    return f"{PARTITIONS}{topic_name}/{index}"


def leader(topic_name: str, index: int) -> str:
    """Who leads a partition; bound to the leading broker's lease."""
    return f"{LEADERS}{topic_name}/{index}"


def topic_and_partition(key: str) -> tuple[str, int]:
    """The inverse of `partition` and `leader`."""
    _, name, index = key.split("/")
    return name, int(index)
