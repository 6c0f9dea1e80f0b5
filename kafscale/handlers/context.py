"""What a handler is given: the broker's services and the request it answers."""

from dataclasses import dataclass

from kafscale.metadata.producer_ids import ProducerIds
from kafscale.metadata.view import ClusterView
from kafscale.ops.metrics import Metrics
from kafscale.settings import Settings
from kafscale.storage.log_manager import LogManager
from kafscale.storage.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The services of this broker. Handlers keep no state of their own."""

    settings: Settings
    view: ClusterView
    topics: Topics
    logs: LogManager
    producer_ids: ProducerIds
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """The request at hand. `client_host` is the peer's address as text."""

    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
