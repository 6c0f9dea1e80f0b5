"""A Fetch request with each partition once."""

from kafscale.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, decode_fetch_request


def decode_asked_once(body: memoryview, version: int) -> FetchRequest:
    """Decode a Fetch request's body, without repeated partitions.

    As in Kafka, whose request becomes a map, a repeated partition has the place of its first entry and the values
    of its last. Raises `MalformedRequestError` as `decode_fetch_request` does.
    """
    fetch = decode_fetch_request(body, version)
    return fetch if _names_each_once(fetch) else fetch._replace(topics=_merged(fetch.topics))


def _names_each_once(fetch: FetchRequest) -> bool:
    topics = fetch.topics
    if len(topics) > 1 and len({topic[:2] for topic in topics}) < len(topics):
        return False
    for topic in topics:
        partitions = topic.partitions
        if len(partitions) > 1 and len({wanted.partition for wanted in partitions}) < len(partitions):
            return False
    return True


def _merged(topics: list[FetchTopic]) -> list[FetchTopic]:
    merged: dict[tuple[str | None, bytes | None], dict[int, FetchPartition]] = {}
    for topic in topics:
        merged.setdefault((topic.name, topic.topic_id), {}).update(
            (wanted.partition, wanted) for wanted in topic.partitions
        )
    return [FetchTopic(*key, list(partitions.values())) for key, partitions in merged.items()]
