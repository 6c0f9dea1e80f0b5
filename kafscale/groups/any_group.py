"""A group of either type, and the one way to apply an event to it."""

from collections.abc import Sequence

from kafscale.groups import machine
from kafscale.groups.consumer import machine as consumer_machine
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.effects import Assign, Downgraded, StoreChanges
from kafscale.groups.consumer.events import ConsumerEvent
from kafscale.groups.effects import Effect
from kafscale.groups.events import Event
from kafscale.groups.group import Group

AnyGroup = Group | ConsumerGroup
AnyEvent = Event | ConsumerEvent
AnyEffect = Effect | StoreChanges | Assign | Downgraded


def apply(group: AnyGroup, event: AnyEvent) -> Sequence[AnyEffect]:
    """Apply the event to the group. What is meant for the group's other type has no effect: it was converted."""
    if isinstance(group, ConsumerGroup):
        return consumer_machine.apply(group, event)
    if isinstance(event, ConsumerEvent):
        return []
    return machine.apply(group, event)
