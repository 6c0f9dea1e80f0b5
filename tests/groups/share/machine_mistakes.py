"""Mistakes that the walk of a share group has to find."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from kafscale.groups.effects import Answer
from kafscale.groups.modern.assignment import NO_PARTITIONS
from kafscale.groups.modern.effects import StoreChanges
from kafscale.groups.modern.events import Assigned, Loaded, TopicsChanged
from kafscale.groups.share import heartbeats, machine, settling
from kafscale.groups.share.events import StartsInitialized
from kafscale.groups.share.settling import Effects
from kafscale.groups.share.share_group import AwaitedTarget, ShareGroup

Plant = Callable[[pytest.MonkeyPatch], None]


def answers_before_it_stores(patch: pytest.MonkeyPatch) -> None:
    """Answers do not wait."""

    def early(group: ShareGroup, answers: Iterable[Answer], out: Effects) -> None:
        out.extend(answers)
        settling.settle(group, (), out)

    for module in (heartbeats, machine):
        patch.setattr(module, "settle", early)


def assigns_without_a_start(patch: pytest.MonkeyPatch) -> None:
    """A target is taken over as it comes."""
    patch.setitem(machine.TABLE, Assigned, machine._take_over)


def remembers_starts_of_an_empty_group(patch: pytest.MonkeyPatch) -> None:
    """Those that were known before the last member left."""
    patch.setattr(ShareGroup, "forget_starts", lambda group: None)


def believes_starts_that_were_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Those that were on their way when the last member left."""

    def believe(group: ShareGroup, event: StartsInitialized, out: Effects) -> None:
        group.asked_starts = event.partitions
        machine.starts_initialized(group, event, out)

    patch.setitem(machine.TABLE, StartsInitialized, believe)


def says_nothing_to_who_lost_an_answer(patch: pytest.MonkeyPatch) -> None:
    """A member at its previous epoch is taken for one that knows all."""

    def going_on(group: ShareGroup, awaited: AwaitedTarget) -> Answer:
        told = group.members[awaited.event.member_id].assigned if awaited.told is None else awaited.told
        return real(group, replace(awaited, told=told))

    real = heartbeats.go_on
    for module in (heartbeats, machine):
        patch.setattr(module, "go_on", going_on)


def forgets_topics_that_change_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """While a target is computed."""

    def deaf(group: ShareGroup, event: TopicsChanged, out: Effects) -> None:
        if not group.is_assigning:
            machine.topics_changed(group, event, out)

    patch.setitem(machine.TABLE, TopicsChanged, deaf)


def does_not_compare_what_it_loads(patch: pytest.MonkeyPatch) -> None:
    """The topics may have changed since."""
    patch.setitem(machine.TABLE, Loaded, lambda group, event, out: None)


def keeps_who_is_silent(patch: pytest.MonkeyPatch) -> None:
    """For ever."""
    patch.setattr(ShareGroup, "remove", lambda group, member_id: None)


def tells_what_it_does_not_store(patch: pytest.MonkeyPatch) -> None:
    """A member's step towards the target."""

    def unstored(group: ShareGroup, awaited: AwaitedTarget) -> Answer:
        answer = real(group, awaited)
        group.changes.members.clear()
        return answer

    real = heartbeats.go_on
    for module in (heartbeats, machine):
        patch.setattr(module, "go_on", unstored)


def leaves_its_own_record_out(patch: pytest.MonkeyPatch) -> None:
    """The group's own record is never written."""

    def without(group: ShareGroup, answers: Iterable[Answer], out: Effects) -> None:
        real(group, answers, out)
        out[:] = [replace(one, record=None) if isinstance(one, StoreChanges) else one for one in out]

    real = settling.settle
    for module in (heartbeats, machine):
        patch.setattr(module, "settle", without)


def assigns_nothing(patch: pytest.MonkeyPatch) -> None:
    """Every target is empty."""

    def asked(group: ShareGroup, event: Assigned, out: Effects) -> None:
        machine.assigned(group, replace(event, target=dict.fromkeys(event.target, NO_PARTITIONS)), out)

    patch.setitem(machine.TABLE, Assigned, asked)


MISTAKES: list[Plant] = [
    answers_before_it_stores,
    assigns_without_a_start,
    remembers_starts_of_an_empty_group,
    believes_starts_that_were_forgotten,
    says_nothing_to_who_lost_an_answer,
    forgets_topics_that_change_meanwhile,
    does_not_compare_what_it_loads,
    keeps_who_is_silent,
    tells_what_it_does_not_store,
    leaves_its_own_record_out,
    assigns_nothing,
]
