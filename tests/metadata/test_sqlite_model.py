"""The embedded store does what a dictionary does, over restarts and with many callers at once."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.errors import LeaseEndedError
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, Operation, Put, TransactionResult
from tests.support.nightly import by_day

KEYS = ("a", "a/", "a/1", "a/10", "b")
NO_LEASE_CHOICE = -1


@dataclass(frozen=True)
class Transaction:
    """Drawn input: what each key is compared with (None: whatever it is), put (None: deleted), bound to."""

    compares: dict[str, int | None]
    puts: dict[str, tuple[bytes, int] | None]


@dataclass(frozen=True)
class Together:
    """Transactions that are asked for at once."""

    transactions: tuple[Transaction, ...]


@dataclass(frozen=True)
class Revoke:
    """The end of a lease, chosen among those ever granted."""

    choice: int


@dataclass(frozen=True)
class Grant:
    pass


@dataclass(frozen=True)
class Reopen:
    pass


Step = Together | Revoke | Grant | Reopen

transactions = st.builds(
    Transaction,
    compares=st.dictionaries(
        st.sampled_from(KEYS), st.one_of(st.none(), st.just(ABSENT), st.integers(1, 12)), max_size=2
    ),
    puts=st.dictionaries(
        st.sampled_from(KEYS),
        st.one_of(st.none(), st.tuples(st.binary(max_size=3), st.integers(NO_LEASE_CHOICE, 3))),
        max_size=3,
    ),
)
steps = st.lists(
    st.one_of(
        st.builds(Together, st.lists(transactions, min_size=1, max_size=5).map(tuple)),
        st.builds(Revoke, st.integers(0, 3)),
        st.builds(Grant),
        st.builds(Reopen),
    ),
    max_size=25,
)


@dataclass
class Model:
    """The simplest thing that keeps the Protocol's promises."""

    items: dict[str, KeyValue] = field(default_factory=dict)
    leases: list[int] = field(default_factory=list)
    live: set[int] = field(default_factory=set)
    revision: int = 0

    def lease(self, choice: int) -> int:
        if choice == NO_LEASE_CHOICE or not self.leases:
            return 0
        return self.leases[choice % len(self.leases)]

    def request(self, drawn: Transaction) -> tuple[list[Compare], list[Operation]]:
        compares = []
        for key, wanted in drawn.compares.items():
            held = self.items[key].mod_revision if key in self.items else ABSENT
            compares.append(Compare(key, held if wanted is None else wanted))
        operations: list[Operation] = []
        for key, put in drawn.puts.items():
            operations.append(Delete(key) if put is None else Put(key, put[0], self.lease(put[1])))
        return compares, operations

    def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult | None:
        """None stands for `LeaseEndedError`."""
        found = tuple(self.items.get(compare.key) for compare in compares)
        held = [item.mod_revision if item else ABSENT for item in found]
        if held != [compare.mod_revision for compare in compares]:
            return TransactionResult(succeeded=False, revision=self.revision, found=found)
        puts = [operation for operation in operations if isinstance(operation, Put)]
        if any(put.lease and put.lease not in self.live for put in puts):
            return None
        deletes = [operation.key for operation in operations if isinstance(operation, Delete)]
        if puts or self.items.keys() & set(deletes):
            self.revision += 1
        for key in deletes:
            self.items.pop(key, None)
        for put in puts:
            self.items[put.key] = KeyValue(
                key=put.key, value=put.value, mod_revision=self.revision, lease=put.lease
            )
        return TransactionResult(succeeded=True, revision=self.revision)

    def end(self, leases: set[int]) -> None:
        bound = [key for key, item in self.items.items() if item.lease in leases]
        if bound:
            self.revision += 1
        for key in bound:
            del self.items[key]
        self.live -= leases


async def ask(
    store: SqliteStore, compares: Sequence[Compare], operations: Sequence[Operation]
) -> TransactionResult | None:
    try:
        return await store.transact(compares, operations)
    except LeaseEndedError:
        return None


async def play(path: Path, played: Sequence[Step]) -> None:
    model = Model()
    store = await SqliteStore.open(path, fsync=False)
    try:
        for step in played:
            match step:
                case Together(drawn):
                    requests = [model.request(each) for each in drawn]
                    # Tasks start, so requests are submitted, in the order of creation.
                    answers = await asyncio.gather(*(ask(store, *request) for request in requests))
                    assert answers == [model.transact(*request) for request in requests]
                case Revoke(choice):
                    await store.revoke_lease(model.lease(choice))
                    model.end({model.lease(choice)} & model.live)
                case Grant():
                    model.leases.append(await store.grant_lease(3600))
                    model.live.add(model.leases[-1])
                case Reopen():
                    await store.close()
                    store = await SqliteStore.open(path, fsync=False)
                    model.end(model.live)
                    model.leases.clear()
            for prefix in ("", "a/", "a/1", "c"):
                items = sorted((key, item) for key, item in model.items.items() if key.startswith(prefix))
                found = await store.range(prefix)
                assert found.items == tuple(item for _, item in items)
                assert found.revision == model.revision
    finally:
        await store.close()


@settings(max_examples=by_day(40, by_night=800), deadline=None)
@given(steps)
def test_it_does_what_the_model_does(played: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder) / "metadata.db", played))
