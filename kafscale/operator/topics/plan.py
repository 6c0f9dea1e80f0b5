"""Plans the changes that make a topic match its resource. Pure.

Configs are merged three ways, as in kubectl: a config that the resource names is kept at that value; one that it no
longer names is reset, unless it was changed since; all others are left to Kafka's own tools.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.metadata.model import TopicRecord
from kafscale.operator.topics.spec import TopicSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The differences. `partition_count`: the new count, None if sufficient. `notes`: what stays, and why."""

    create: bool = False
    partition_count: int | None = None
    set_configs: Mapping[str, str]
    reset_configs: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if the topic matches."""
        return not (self.create or self.partition_count or self.set_configs or self.reset_configs)

    def changed(self, configs: Mapping[str, str]) -> dict[str, str]:
        """A topic's configs after the plan."""
        kept = {name: value for name, value in configs.items() if name not in self.reset_configs}
        return kept | dict(self.set_configs)


def plan_topic(wanted: TopicSpec, applied: Mapping[str, str], found: TopicRecord | None) -> TopicPlan:
    """`applied`: configs that the resource had set when it was last carried out."""
    if found is None:
        return TopicPlan(create=True, partition_count=wanted.partition_count, set_configs=wanted.configs)
    differs = {name: value for name, value in wanted.configs.items() if found.configs.get(name) != value}
    dropped = frozenset(
        name
        for name, value in applied.items()
        if name not in wanted.configs and found.configs.get(name) == value
    )
    has, wants = found.partition_count, wanted.partition_count
    notes = () if has <= wants else (f"it has {has} partitions, {wants} are wanted: none are taken away",)
    return TopicPlan(
        partition_count=wants if has < wants else None,
        set_configs=differs,
        reset_configs=dropped,
        notes=notes,
    )
