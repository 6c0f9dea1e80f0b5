"""JSON Schema of a KafscaleTopic's `spec`."""

from typing import Any, Final

from kafscale.operator.schema.schema_parts import choice, duration, integer, section, text

MAX_PARTITIONS: Final = 10_000
COMPRESSIONS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


def spec() -> dict[str, Any]:
    """The whole of `spec`."""
    return section(
        "What the topic is to be.",
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
                "How many partitions it has at least; partitions are added, never taken away.",
                1,
                MAX_PARTITIONS,
                default=1,
            ),
            "retention": duration("How long records are kept (retention.ms); -1 for ever is `config`'s."),
            "compression": choice("The topic's compression.type.", COMPRESSIONS),
            "config": {
                "type": "object",
                "description": "Kafka's topic configs, such as segment.bytes. What is named here is kept as it is "
                "said here; what is not is left to those who administer the topic otherwise.",
                "additionalProperties": {"x-kubernetes-int-or-string": True},
                "maxProperties": 64,
            },
            "deletionPolicy": choice(
                "Whether the topic and its records are deleted with this resource.",
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
