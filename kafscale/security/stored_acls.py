"""The access rules that a snapshot of the metadata store and the changes after it come to."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping

from kafscale.errors import CorruptDataError
from kafscale.formats.acl_record import STORED_ACL, AclBinding, decode_acl, denial_of
from kafscale.metadata.store import Delete, KeyValue
from kafscale.security.acl_index import AclIndex

logger = logging.getLogger(__name__)


class StoredAcls:
    """`rules`: those that can be read. `stand_ins`: what those that cannot be read might deny, as rules."""

    def __init__(self) -> None:
        self.rules, self.stand_ins = AclIndex(), AclIndex()
        self._unreadable: dict[str, AclBinding | None] = {}
        self._denials: Counter[AclBinding] = Counter()

    def unreadable(self) -> Mapping[str, AclBinding | None]:
        """The records that cannot be read, by key, and what stands in for each."""
        return dict(self._unreadable)

    @property
    def unreadable_count(self) -> int:
        """How many records cannot be read."""
        return len(self._unreadable)

    @property
    def rule_count(self) -> int:
        """How many rules there are, stand-ins included."""
        return self.rules.rule_count + self.stand_ins.rule_count

    def apply(self, change: KeyValue | Delete) -> None:
        """Take in one change of a key."""
        if isinstance(change, Delete):
            self._remove(change.key)
            return
        try:
            rule = decode_acl(change.key, change.value)
        except CorruptDataError as problem:
            self._remove(change.key)
            self._add_unreadable(change.key, problem)
        else:
            if self._unreadable:
                self._remove_unreadable(change.key)
            self.rules.add(rule)

    def walk(self, principal: str | None = None) -> Iterator[AclBinding | None]:
        """Every rule once, or every rule about the principal; None in between, so that long walks can pause.

        A rule is as it is when its turn comes. One that is added meanwhile may be left out.
        """
        for index in (self.rules, self.stand_ins):
            for each in index.principals() if principal is None else (principal,):
                yield None
                yield from index.rules_of(each)

    def _remove(self, key: str) -> None:
        if key in self._unreadable:
            self._remove_unreadable(key)
            return
        try:
            self.rules.remove(decode_acl(key, STORED_ACL))
        except CorruptDataError:
            logger.warning("a record that was never seen is gone", extra={"key": key})

    def _add_unreadable(self, key: str, problem: CorruptDataError) -> None:
        denial = denial_of(key)
        self._unreadable[key] = denial
        logger.error(
            "an access rule in the metadata store cannot be read, and what it might deny is denied",
            extra={
                "key": key,
                "problem": problem.problem,
                "denied": "nothing" if denial is None else str(denial),
            },
        )
        if denial is not None:
            self._denials[denial] += 1
            self.stand_ins.add(denial)

    def _remove_unreadable(self, key: str) -> None:
        denial = self._unreadable.pop(key, None)
        if denial is None:
            return
        self._denials[denial] -= 1
        if not self._denials[denial]:
            del self._denials[denial]
            self.stand_ins.remove(denial)
