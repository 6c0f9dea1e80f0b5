"""A group of any type, and the one way to apply an event to it."""

from collections.abc import Sequence

from kafscale.groups import machine
from kafscale.groups.consumer import machine as consumer_machine
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.effects import Downgraded
from kafscale.groups.consumer.events import ConsumerEvent, OnlyConsumerEvent
from kafscale.groups.effects import Effect
from kafscale.groups.events import Event
from kafscale.groups.group import Group
from kafscale.groups.modern.effects import Assign, StoreChanges
from kafscale.groups.share import machine as share_machine
from kafscale.groups.share.effects import InitializeStarts
from kafscale.groups.share.events import OnlyShareEvent, ShareEvent
from kafscale.groups.share.share_group import ShareGroup

AnyGroup = Group | ConsumerGroup | ShareGroup
AnyEvent = Event | ConsumerEvent | ShareEvent
AnyEffect = Effect | StoreChanges | Assign | Downgraded | InitializeStarts


def apply(group: AnyGroup, event: AnyEvent) -> Sequence[AnyEffect]:
    """Apply the event to the group. What is meant for another type has no effect: the group was converted."""
    if isinstance(group, ConsumerGroup):
        return [] if isinstance(event, OnlyShareEvent) else consumer_machine.apply(group, event)
    if isinstance(group, ShareGroup):
        return [] if isinstance(event, OnlyConsumerEvent) else share_machine.apply(group, event)
    if isinstance(event, ConsumerEvent | ShareEvent):
        return []
    return machine.apply(group, event)
