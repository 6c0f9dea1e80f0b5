"""One transaction that claims items: their keys, what it compares, and what it puts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafscale.metadata.store import ABSENT, Compare, KeyValue, Put

MAX_TRANSACTION_BYTES = 1024 * 1024
"""The limit on the values of one transaction: etcd takes up to 1.5 MiB by default."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The keys of an item that can be claimed. Several items may have the same ground."""

    record_key: str
    owner_key: str
    ground_key: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """All of them."""
        both = self.record_key, self.owner_key
        return both if self.ground_key is None else (*both, self.ground_key)


@dataclass(frozen=True, slots=True)
class Owned:
    """An item that this broker owns: its record's value and the revision of both keys."""

    claim: Claim
    record: bytes
    revision: int


class ClaimAttempt:
    """One transaction. The revision of the items in `owned` is not known yet."""

    def __init__(self) -> None:
        self.owned: list[Owned] = []
        self.compares: list[Compare] = []
        self.puts: list[Put] = []
        self._grounds: set[str] = set()

    def add(
        self,
        claim: Claim,
        stored: KeyValue | None,
        ground: KeyValue | None,
        record: bytes,
        owner: bytes,
        lease: int,
    ) -> None:
        """Claim this item, too, on the condition that its record and its ground are unchanged and it has no owner."""
        self.owned.append(Owned(claim, record, ABSENT))
        if claim.ground_key is not None and claim.ground_key not in self._grounds:
            self._grounds.add(claim.ground_key)
            revision = ABSENT if ground is None else ground.mod_revision
            self.compares.append(Compare(claim.ground_key, revision))
        self.compares.append(Compare(claim.record_key, ABSENT if stored is None else stored.mod_revision))
        self.compares.append(Compare(claim.owner_key, ABSENT))
        self.puts.append(Put(claim.record_key, record))
        self.puts.append(Put(claim.owner_key, owner, lease))


def by_size(claims: Sequence[Claim], found: Mapping[str, KeyValue]) -> Iterator[Sequence[Claim]]:
    """The claims in parts whose records fit into one transaction."""
    part: list[Claim] = []
    size_bytes = 0
    for claim in claims:
        stored = found.get(claim.record_key)
        size = 0 if stored is None else len(stored.value)
        if part and size_bytes + size > MAX_TRANSACTION_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(claim)
        size_bytes += size
    if part:
        yield part
