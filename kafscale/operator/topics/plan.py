"""What is to be done to a topic so that it is as its resource says. Pure.

Configs are merged three ways, as kubectl does: what the resource names is kept as it is named, whoever changes it;
what it named once and names no more is reset, unless somebody has changed it since; everything else is left to
those who administer the topic by Kafka's own tools.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.metadata.model import TopicRecord
from kafscale.operator.topics.spec import TopicSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """The differences. `partition_count`: to so many, None where it has enough. `notes`: what is left as it is."""

    create: bool = False
    partition_count: int | None = None
    set_configs: Mapping[str, str]
    reset_configs: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the topic is as it should be."""
        return not (self.create or self.partition_count or self.set_configs or self.reset_configs)

    def changed(self, configs: Mapping[str, str]) -> dict[str, str]:
        """A topic's configs after the plan."""
        kept = {name: value for name, value in configs.items() if name not in self.reset_configs}
        return kept | dict(self.set_configs)


def plan_topic(wanted: TopicSpec, applied: Mapping[str, str], found: TopicRecord | None) -> TopicPlan:
    """`applied`: what the resource had set when it was last carried out."""
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
