"""The limits of one kind of quota, and the one that applies to a client. Pure."""

from hashlib import blake2b
from typing import Final, NamedTuple

from kafscale.formats.quota_record import DEFAULT, QuotaEntity
from kafscale.security.quota_rules import plain_address

BucketKey = tuple[str | bytes | None, str | bytes | None]
"""The user and the client id that share an allowance; None where it is all of them."""

_KEPT_CHARACTERS: Final = 128
MAX_KEPT_LIMITS: Final = 10_000
"""Of clients whose limit was looked for; past it all are forgotten. Longer names are looked for each time."""


class Limit(NamedTuple):
    """A limit (a second), and whose amounts count together against it."""

    rate: float
    bucket: BucketKey


class ClientLimits:
    """Limits of users, client ids and both, by Kafka's order of precedence."""

    def __init__(self) -> None:
        self.are_any = False
        self._rates: dict[tuple[str | None, str | None], float] = {}
        self._kept: dict[tuple[str, str], Limit | None] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def set(self, entity: QuotaEntity, rate: float | None) -> None:
        """Set the entity's limit; None removes it."""
        self._kept.clear()
        place = (entity.user, entity.client_id)
        if rate is None:
            self._rates.pop(place, None)
        else:
            self._rates[place] = rate
        self.are_any = bool(self._rates)

    def find(self, user: str, client_id: str) -> Limit | None:
        """The most specific limit of the client: of its user, then of the default user, then of its client id alone.

        A client without a client id counts as of the default one, which Kafka leaves without a limit.
        """
        kept, client = self._kept, (user, client_id)
        if client in kept:
            return kept[client]
        limit = self._look_for(user, client_id)
        if len(user) <= _KEPT_CHARACTERS and len(client_id) <= _KEPT_CHARACTERS:
            if len(kept) >= MAX_KEPT_LIMITS:
                kept.clear()
            kept[client] = limit
        return limit

    def _look_for(self, user: str, client_id: str) -> Limit | None:
        get = self._rates.get
        for named in (user, DEFAULT):
            for place in ((named, client_id), (named, DEFAULT)):
                rate = get(place)
                if rate is not None:
                    return Limit(rate, (_short(user), _short(client_id)))
            rate = get((named, None))
            if rate is not None:
                return Limit(rate, (_short(user), None))
        for place_of_client in ((None, client_id), (None, DEFAULT)):
            rate = get(place_of_client)
            if rate is not None:
                return Limit(rate, (None, _short(client_id)))
        return None


class AddressLimits:
    """Limits of addresses."""

    def __init__(self) -> None:
        self.are_any = False
        self._rates: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def set(self, entity: QuotaEntity, rate: float | None) -> None:
        """Set the address's limit; None removes it. What is no address is ignored: no client has it."""
        address = DEFAULT if entity.ip == DEFAULT else plain_address(entity.ip or "")
        if address is None:
            return
        if rate is None:
            self._rates.pop(address, None)
        else:
            self._rates[address] = rate
        self.are_any = bool(self._rates)

    def find(self, address: str, share: str) -> Limit | None:
        """The limit of the address. `share`: what counts together where only the default applies."""
        own = plain_address(address)
        rate = None if own is None else self._rates.get(own)
        if rate is not None:
            return Limit(rate, (own, None))
        rate = self._rates.get(DEFAULT)
        return None if rate is None else Limit(rate, (share, None))


def _short(name: str) -> str | bytes:
    """The name, or a digest of a long one: a client may send a client id of 32 KiB, and buckets are kept."""
    if len(name) <= _KEPT_CHARACTERS:
        return name
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()
