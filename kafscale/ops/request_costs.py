"""The counters of what requests to a bucket cost; who counts: `objects/request_meter.py`."""

from dataclasses import dataclass

from kafscale.ops import metric_families as families
from kafscale.ops.counted import counted


@dataclass(slots=True, eq=False)
class StoreRequests:
    """The requests of one operation of a bucket, as it bills them."""

    count: int = counted(families.OBJECT_STORE_REQUESTS)
    dollars: float = counted(families.REQUEST_COST)


@dataclass(slots=True, eq=False)
class TopicCosts:
    """The dollars that one topic's requests to the bucket cost, by price."""

    put: float = counted(families.TOPIC_REQUEST_COST, "put")
    get: float = counted(families.TOPIC_REQUEST_COST, "get")
