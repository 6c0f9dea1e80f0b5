"""Mistakes that the walks of share partitions must find."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from kafscale.share.led_share_partition import LedSharePartition
from kafscale.share.partition import acknowledging, acquiring, releasing, share_partition
from kafscale.share.partition.acknowledging import AcknowledgedBatch
from kafscale.share.partition.runs import FINAL_STATES, RecordState, Run
from kafscale.share.partition.share_partition import DurableState, ShareLimits, SharePartition

Plant = Callable[[pytest.MonkeyPatch], None]

_real_advance = share_partition.advance
_real_acknowledge = acknowledging.acknowledge
_real_durable_state = SharePartition.durable_state
_real_of = SharePartition.of.__func__  # type: ignore[attr-defined]


def _everywhere(patch: pytest.MonkeyPatch, name: str, value: object) -> None:
    for module in (share_partition, acquiring, acknowledging, releasing):
        if hasattr(module, name):
            patch.setattr(module, name, value)


def start_passes_a_record_that_is_acquired(patch: pytest.MonkeyPatch) -> None:
    def advance(partition: SharePartition) -> None:
        _real_advance(partition)
        for run in tuple(partition.runs):
            if run.state is RecordState.ACQUIRED and run.records > 2:
                partition.runs.drop_before(run.first + 1)
            break

    _everywhere(patch, "advance", advance)


def no_delivery_is_the_last(patch: pytest.MonkeyPatch) -> None:
    def available_again(run: Run, partition: SharePartition) -> Run:
        return Run(run.first, run.last, RecordState.AVAILABLE, run.delivery_count)

    _everywhere(patch, "available_again", available_again)


def one_delivery_too_few(patch: pytest.MonkeyPatch) -> None:
    def available_again(run: Run, partition: SharePartition) -> Run:
        if run.delivery_count >= partition.limits.max_deliveries - 1:
            return Run(run.first, run.last, RecordState.ARCHIVED, run.delivery_count)
        return Run(run.first, run.last, RecordState.AVAILABLE, run.delivery_count)

    _everywhere(patch, "available_again", available_again)


def half_of_a_wrong_acknowledgement_is_done(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(partition: SharePartition, member: str, batches: Any, now_ms: int) -> None:
        for batch in batches:
            _real_acknowledge(partition, member, [batch], now_ms)

    patch.setattr(acknowledging, "acknowledge", acknowledge)
    patch.setattr("tests.share.partition.test_partition_walk.acknowledge", acknowledge)


def other_members_may_acknowledge(patch: pytest.MonkeyPatch) -> None:
    def owned(partition: SharePartition, member: str, first: int, last: int) -> list[Run]:
        return partition.runs.within(first, last)

    patch.setattr(acknowledging, "_owned", owned)


def finished_records_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    def durable_state(partition: SharePartition) -> DurableState:
        state = _real_durable_state(partition)
        return replace(
            state,
            runs=tuple(
                run._replace(state=RecordState.AVAILABLE) if run.state in FINAL_STATES else run
                for run in state.runs
            ),
        )

    patch.setattr(SharePartition, "durable_state", durable_state)


def acquired_records_are_stored_as_finished(patch: pytest.MonkeyPatch) -> None:
    def durable_state(partition: SharePartition) -> DurableState:
        state = _real_durable_state(partition)
        acquired = {run.first for run in partition.runs if run.state is RecordState.ACQUIRED}
        return replace(
            state,
            runs=tuple(
                run._replace(state=RecordState.ACKNOWLEDGED) if run.first in acquired else run
                for run in state.runs
            ),
        )

    patch.setattr(SharePartition, "durable_state", durable_state)


def records_are_given_again_before_that_is_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "may_give", lambda _, run: run.state is RecordState.AVAILABLE)


def a_new_leader_archives_what_had_its_last_delivery(patch: pytest.MonkeyPatch) -> None:
    def of(cls: type[SharePartition], state: DurableState, limits: ShareLimits) -> SharePartition:
        runs = tuple(
            run._replace(state=RecordState.ARCHIVED)
            if run.state is RecordState.AVAILABLE and run.delivery_count >= limits.max_deliveries
            else run
            for run in state.runs
        )
        return _real_of(cls, replace(state, runs=runs), limits)  # type: ignore[no-any-return]

    patch.setattr(SharePartition, "of", classmethod(of))


MACHINE_MISTAKES: Final = (
    start_passes_a_record_that_is_acquired,
    no_delivery_is_the_last,
    one_delivery_too_few,
    half_of_a_wrong_acknowledgement_is_done,
    other_members_may_acknowledge,
    finished_records_are_not_stored,
    acquired_records_are_stored_as_finished,
    records_are_given_again_before_that_is_stored,
    a_new_leader_archives_what_had_its_last_delivery,
)


def an_answer_does_not_wait_for_the_store(patch: pytest.MonkeyPatch) -> None:
    async def durable(led: LedSharePartition) -> None:
        led._changed()

    patch.setattr(LedSharePartition, "_durable", durable)


def what_is_finished_already_is_answered_at_once(patch: pytest.MonkeyPatch) -> None:
    async def acknowledge(led: LedSharePartition, member: str, batches: list[AcknowledgedBatch]) -> None:
        led._check()
        before = led.machine.version
        _real_acknowledge(led.machine, member, batches, led._now_ms())
        if led.machine.version != before:
            await led._durable()

    patch.setattr(LedSharePartition, "acknowledge", acknowledge)


def a_leader_that_was_fenced_goes_on(patch: pytest.MonkeyPatch) -> None:
    def lose(led: LedSharePartition, problem: Exception) -> None:
        for one in led._awaited:
            if not one.done.done():
                one.done.set_result(None)
        led._awaited.clear()
        led._is_storing = False

    patch.setattr(LedSharePartition, "lose", lose)


LEADER_MISTAKES: Final = (
    finished_records_are_not_stored,
    acquired_records_are_stored_as_finished,
    one_delivery_too_few,
    records_are_given_again_before_that_is_stored,
    an_answer_does_not_wait_for_the_store,
    what_is_finished_already_is_answered_at_once,
    a_leader_that_was_fenced_goes_on,
)
