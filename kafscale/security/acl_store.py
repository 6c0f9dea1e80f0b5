"""Changes to the access rules in the metadata store. Every write is conditional; twice the same is once."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final

from kafscale.errors import CorruptDataError, StoreUnavailableError
from kafscale.formats.acl_record import STORED_ACL, AclBinding, acl_key, decode_acl
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, MetadataStore, Operation, Put
from kafscale.security.acl_feeder import RULES_PER_TURN, AclFeeder
from kafscale.security.acl_filter import AclFilter
from kafscale.security.stored_acls import StoredAcls
from kafscale.tasks.in_turns import in_turns

MAX_CHANGES: Final = 10_000
"""Rules of one request, as in Kafka (MAX_RECORDS_PER_USER_OP)."""

_ATTEMPTS: Final = 5


class TooManyRulesError(Exception):
    """A request is about more than `MAX_CHANGES` rules; none of them was changed."""


class AclStore:
    """Creates and deletes rules, and waits until this broker decides by the change."""

    def __init__(self, store: MetadataStore, feeder: AclFeeder) -> None:
        self._store = store
        self._feeder = feeder

    @property
    def stored(self) -> StoredAcls:
        """The rules as this broker has seen them."""
        return self._feeder.stored

    async def create(self, rules: Collection[AclBinding]) -> None:
        """Store rules that `problem_of` takes; those that are there already stay.

        Raises `StoreError`: some may have been stored then, and to create them again is safe.
        """
        keys = [acl_key(rule) for rule in dict.fromkeys(rules)]
        revision = 0
        for part in _parts(keys, self._store.max_operations):
            revision = max(revision, await self._create(part))
        await self._feeder.wait_for(revision)

    async def _create(self, keys: Sequence[str]) -> int:
        """Returns the revision at which the last of them was stored."""
        expected: dict[str, int] = dict.fromkeys(keys, ABSENT)
        revision = 0
        for _ in range(_ATTEMPTS):
            compares = [Compare(key, mod_revision) for key, mod_revision in expected.items()]
            operations: list[Operation] = [Put(key, STORED_ACL) for key in expected]
            result = await self._store.transact(compares, operations)
            if result.succeeded:
                return max(revision, result.revision)
            for key, found in zip(list(expected), result.found, strict=True):
                if found is not None and found.value == STORED_ACL:
                    revision = max(revision, found.mod_revision)
                    del expected[key]
                else:
                    expected[key] = ABSENT if found is None else found.mod_revision
            if not expected:
                return revision
        raise _contended()

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Delete the rules that the filters mean, and return those of each.

        The rules are read from the store, not as this broker knows them: another may have just answered their
        creation. Raises `TooManyRulesError`, and `StoreError`: some may have been deleted then.
        """
        doomed: dict[str, KeyValue] = {}
        matching: list[list[AclBinding]] = []
        for wanted in filters:
            found = await self._find(wanted)
            matching.append([rule for rule, _ in found])
            doomed.update((item.key, item) for _, item in found)
            if len(doomed) > MAX_CHANGES:
                raise TooManyRulesError
        revision = 0
        for part in _parts(list(doomed), self._store.max_operations):
            revision = max(revision, await self._delete({key: doomed[key].mod_revision for key in part}))
        await self._feeder.wait_for(revision)
        return matching

    async def _find(self, wanted: AclFilter) -> list[tuple[AclBinding, KeyValue]]:
        found = []
        snapshot = await self._store.range(wanted.key_prefix())
        async for item in in_turns(snapshot.items, RULES_PER_TURN):
            try:
                rule = decode_acl(item.key, item.value)
            except CorruptDataError:
                continue
            if wanted.matches(rule):
                found.append((rule, item))
        for key, denial in self._feeder.stored.unreadable().items():
            if denial is not None and wanted.matches(denial):
                item_now = await self._store.get(key)
                if item_now is not None:
                    found.append((denial, item_now))
        return found

    async def _delete(self, expected: Mapping[str, int]) -> int:
        """Returns the revision at which the last of them was deleted; 0 if others had deleted all."""
        left = dict(expected)
        for _ in range(_ATTEMPTS):
            compares = [Compare(key, mod_revision) for key, mod_revision in left.items()]
            result = await self._store.transact(compares, [Delete(key) for key in left])
            if result.succeeded:
                return result.revision
            for key, found in zip(list(left), result.found, strict=True):
                if found is None:
                    del left[key]
                else:
                    # Created again since it was read: the filter means it all the same.
                    left[key] = found.mod_revision
            if not left:
                return 0
        raise _contended()


def _parts(items: Sequence[str], size: int) -> list[list[str]]:
    remaining = iter(items)
    parts = []
    while part := list(islice(remaining, size)):
        parts.append(part)
    return parts


def _contended() -> StoreUnavailableError:
    return StoreUnavailableError(f"the access rules changed {_ATTEMPTS} times while they were written")
