"""JSON Schema of a KafscaleTopic's `spec`."""

from typing import Any, Final

from kafscale.operator.schema.schema_parts import choice, duration, integer, section, text

MAX_PARTITIONS: Final = 10_000
COMPRESSIONS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


def spec() -> dict[str, Any]:
    """The whole of `spec`."""
    return section(
        "The desired state of the topic.",
        {
            "clusterRef": section(
                "The KafscaleCluster, in the topic's namespace.",
                {"name": text("Its name.", max_length=253)},
                required_names=["name"],
            ),
            "topicName": {
                **text(
                    "The topic's name in Kafka; default: the resource's own.",
                    pattern="^[a-zA-Z0-9._-]{1,249}$",
                ),
                "x-kubernetes-validations": [
                    {"rule": "self == oldSelf", "message": "topicName cannot change: a topic keeps its name"}
                ],
            },
            "partitions": integer(
                "Minimum number of partitions; partitions are added, never removed.",
                1,
                MAX_PARTITIONS,
                default=1,
            ),
            "retention": duration(
                "How long records are retained (retention.ms); for unlimited retention set it to -1 in `config`."
            ),
            "compression": choice("The topic's compression.type.", COMPRESSIONS),
            "config": {
                "type": "object",
                "description": "Kafka's topic configs, such as segment.bytes. Configs "
                "named here are kept at these values; all others are left to Kafka's own tools.",
                "additionalProperties": {"x-kubernetes-int-or-string": True},
                "maxProperties": 64,
            },
            "deletionPolicy": choice(
                "Delete or retain the topic and its records when this resource is deleted.",
                ["Delete", "Retain"],
                default="Delete",
            ),
        },
        required_names=["clusterRef"],
        rules=[
            (
                "!has(self.retention) || !has(self.config) || !('retention.ms' in self.config)",
                "retention and config['retention.ms'] say the same: give one",
            ),
            (
                "!has(self.compression) || !has(self.config) || !('compression.type' in self.config)",
                "compression and config['compression.type'] say the same: give one",
            ),
            (
                "!has(oldSelf.partitions) || self.partitions >= oldSelf.partitions",
                "partitions cannot be taken away",
            ),
            (
                "has(self.topicName) == has(oldSelf.topicName)",
                "topicName cannot be given or taken away later: a topic keeps its name",
            ),
            (
                "self.clusterRef.name == oldSelf.clusterRef.name",
                "clusterRef cannot change: make another topic",
            ),
        ],
    )
