"""Decides which publications share a transaction, and what its result means for each of them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.store import Compare, KeyValue, Put, TransactionResult

# Besides its value a publication costs its key in the compare, in the put and in the read that the store makes
# when a compare fails, each below a prefix of the cluster's that is not known here.
_KEYS_IN_A_REQUEST = 3
_OVERHEAD_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Put `value` under `key` if the key's last change was at `mod_revision`."""

    key: str
    value: bytes
    mod_revision: int

    @property
    def compare(self) -> Compare:
        """Its condition."""
        return Compare(self.key, self.mod_revision)

    @property
    def put(self) -> Put:
        """Its write."""
        return Put(self.key, self.value)

    @property
    def request_bytes(self) -> int:
        """An upper estimate of what it adds to the size of a request."""
        return len(self.value) + _KEYS_IN_A_REQUEST * len(self.key.encode()) + _OVERHEAD_BYTES


def next_batch(waiting: Iterable[Publication], max_operations: int, max_bytes: int) -> list[int]:
    """Returns the positions in `waiting` of the publications that share the next transaction; the first always does.

    Of two publications of one key the later one waits: a transaction names a key once. Everything waits from the
    first publication on that would make the transaction larger than `max_operations` or `max_bytes`.
    """
    places: list[int] = []
    keys: set[str] = set()
    size_bytes = 0
    for place, publication in enumerate(waiting):
        if publication.key in keys:
            continue
        size_bytes += publication.request_bytes
        if places and (len(places) == max_operations or size_bytes > max_bytes):
            break
        places.append(place)
        keys.add(publication.key)
    return places


def answers(batch: Sequence[Publication], result: TransactionResult) -> list[TransactionResult | None]:
    """Returns the result that each would have had alone, or None where it is unknown: send that one again.

    It is unknown where its own compare held and another's did not. Raises `StoreUnavailableError` if the store
    says that a compare failed, and none can have.
    """
    if result.succeeded:
        return [result] * len(batch)
    each = [
        None
        if _held(publication, found)
        else TransactionResult(succeeded=False, revision=result.revision, found=(found,))
        for publication, found in zip(batch, result.found, strict=True)
    ]
    if all(answer is None for answer in each):
        raise StoreUnavailableError(
            f"the metadata store refused a transaction of {len(batch)} publications, and every compare holds"
        )
    return each


def _held(publication: Publication, found: KeyValue | None) -> bool:
    return found is not None and found.mod_revision == publication.mod_revision
