"""Requests that wait for a target assignment, one of each member."""

from collections.abc import KeysView
from typing import Generic, Protocol, TypeVar


class Awaited(Protocol):
    """A request that waits for the target of `epoch`."""

    @property
    def epoch(self) -> int:
        """The group epoch."""


AwaitedType = TypeVar("AwaitedType", bound=Awaited)


class AwaitedTargets(Generic[AwaitedType]):
    """By member id, in the order in which they came: each heartbeat looks for the one before it."""

    __slots__ = ("_by_member",)

    def __init__(self) -> None:
        self._by_member: dict[str, AwaitedType] = {}

    def __len__(self) -> int:
        return len(self._by_member)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._by_member

    @property
    def members(self) -> KeysView[str]:
        """The ids of those that wait."""
        return self._by_member.keys()

    def add(self, member_id: str, awaited: AwaitedType) -> None:
        """The member's request waits. One that waited before was taken out first: it is answered, too."""
        self._by_member[member_id] = awaited

    def take(self, member_id: str) -> AwaitedType | None:
        """Take out that of the member, if it has one."""
        return self._by_member.pop(member_id, None)

    def take_through(self, epoch: int) -> list[AwaitedType]:
        """Take out those that wait for the target of this epoch, or an earlier one."""
        members = [member_id for member_id, one in self._by_member.items() if one.epoch <= epoch]
        return [self._by_member.pop(member_id) for member_id in members]

    def take_all(self) -> list[AwaitedType]:
        """Take all of them out."""
        taken = list(self._by_member.values())
        self._by_member.clear()
        return taken
