"""The faults that a test orders of brokers: of the requests of their clients, and of their stores."""

from kafscale.testing.request_faults import Delay, Drop, Failure, RequestFaults
from kafscale.testing.store_faults import StoreFaults


class OrderedFaults:
    """Of one broker, or of all brokers of a cluster.

    Each order is carried out `times` times, once by default; with None until it is removed. As a context manager it
    is removed at the end of the block. A test's own calls, such as `produce` and `records`, are not concerned.
    """

    def __init__(self) -> None:
        self.requests = RequestFaults()
        self.objects = StoreFaults("object store")
        self.metadata = StoreFaults("metadata store")

    def clear(self) -> None:
        """Remove all."""
        for faults in (self.requests, self.objects, self.metadata):
            faults.clear()


class Troubles:
    """Orders of a test that something goes wrong; of a broker and of a cluster alike."""

    @property
    def _faults(self) -> OrderedFaults:
        raise NotImplementedError

    def fail(
        self,
        api: str,
        error: str,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
    ) -> Failure:
        """Answer the next `times` requests of an API with an error, and do not carry them out; None: until removed.

        `api` and `error` as Kafka names them: `fail("Produce", "NOT_LEADER_OR_FOLLOWER")`. With `topic`, and
        `partition`, only for these. `hits` of the result counts. Raises `ValueError` for what there is not.
        """
        return self._faults.requests.fail(api, error, times=times, topic=topic, partition=partition)

    def delay(self, api: str | None, seconds: float, *, times: int | None = 1) -> Delay:
        """Answer the next `times` requests of an API later, by the brokers' clock; None: of every API."""
        return self._faults.requests.delay(api, seconds, times=times)

    def drop_connection(self, api: str | None = None, *, times: int | None = 1, after: bool = False) -> Drop:
        """End the connection in the place of an answer. `after`: carry the request out before."""
        return self._faults.requests.drop_connection(api, times=times, after=after)

    @property
    def store(self) -> StoreFaults:
        """Faults of the object store: `with broker.store.outage(): ...`, and single ones."""
        return self._faults.objects

    @property
    def metadata_store(self) -> StoreFaults:
        """Faults of the metadata store."""
        return self._faults.metadata
