"""kafka-features.sh, which is Kafka's AdminClient: describes, upgrades, and is refused what has no way back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import java as tools
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.java import ToolResult, ToolServer
from tests.support.topics import create_topic, unique_name

FEATURE = "kafscale.segment.format"
TO_2 = ("--feature", f"{FEATURE}=2")


@pytest.fixture
def own_broker(only_kafscale: None, tmp_path: Path) -> Iterator[KafscaleBroker]:
    """A broker that no other test uses: a level stays finalized."""
    with running_broker(tmp_path) as broker:
        yield broker


class FeaturesTool:
    """`kafka-features.sh --bootstrap-server` of one broker."""

    def __init__(self, java: ToolServer, broker: KafscaleBroker) -> None:
        self._java = java
        self._broker = broker

    def __call__(self, *arguments: str) -> ToolResult:
        return self._java.tool(tools.FEATURES, "--bootstrap-server", self._broker.bootstrap, *arguments)

    def described(self, feature: str = FEATURE) -> dict[str, str]:
        """The feature's row by column."""
        rows = [
            dict(column.split(": ", 1) for column in row.split("\t"))
            for row in self("describe").ok().strip().splitlines()
        ]
        (found,) = (row for row in rows if row["Feature"] == feature)
        return found

    def refused(self, *arguments: str) -> str:
        result = self(*arguments)
        assert result.exit_code == 1, result
        return result.out + result.err


@pytest.fixture
def features(java: ToolServer, own_broker: KafscaleBroker) -> FeaturesTool:
    return FeaturesTool(java, own_broker)


def test_upgrade_and_what_is_refused_after_it(features: FeaturesTool, own_broker: KafscaleBroker) -> None:
    before = {
        "Feature": FEATURE,
        "SupportedMinVersion": "1",
        "SupportedMaxVersion": "2",
        "FinalizedVersionLevel": "0",
    }

    def shown() -> dict[str, str]:
        """Without the epoch, which is that of all features."""
        row = features.described()
        assert int(row.pop("Epoch")) > 0
        return row

    assert shown() == before
    assert f"{FEATURE} can be upgraded to 2." in features("upgrade", *TO_2, "--dry-run").ok()
    assert "Broker 0 only supports versions 1-2." in features.refused("upgrade", "--feature", f"{FEATURE}=3")
    assert "Can't downgrade to a newer version." in features.refused("downgrade", *TO_2)
    unknown = features.refused("upgrade", *TO_2, "--feature", "metadata.version=25")
    assert "Broker 0 does not support this feature." in unknown
    assert shown() == before

    for _ in range(2):  # the second time nothing is left to do
        assert f"{FEATURE} was upgraded to 2." in features("upgrade", *TO_2).ok()
    after = features.described()
    assert after["FinalizedVersionLevel"] == "2"
    assert int(after["Epoch"]) > 0

    for arguments in (
        ("downgrade", "--feature", f"{FEATURE}=1"),
        ("downgrade", "--feature", f"{FEATURE}=1", "--unsafe"),
        ("downgrade", "--feature", f"{FEATURE}=1", "--dry-run"),
        ("disable", "--feature", FEATURE),
        ("disable", "--feature", FEATURE, "--unsafe"),
        ("upgrade", "--feature", f"{FEATURE}=1"),
    ):
        assert "Level 2 is finalized" in features.refused(*arguments)
    own_broker.kill9()
    own_broker.start()
    assert features.described() == after


@pytest.mark.parametrize(("feature", "level"), [("transaction.version", 2), ("group.version", 1)])
def test_a_new_cluster_has_newest_levels(features: FeaturesTool, feature: str, level: int) -> None:
    row = features.described(feature)
    del row["Epoch"]
    assert row == {
        "Feature": feature,
        "SupportedMinVersion": "0",
        "SupportedMaxVersion": f"{level}",
        "FinalizedVersionLevel": f"{level}",
    }
    refusal = features.refused("downgrade", "--feature", f"{feature}={level - 1}")
    assert f"Level {level} is finalized" in refusal


def test_large_segment_error_names_the_helpful_command(
    features: FeaturesTool, java: ToolServer, own_broker: KafscaleBroker
) -> None:
    """With kafka-configs.sh: kafka-topics.sh takes `segment.bytes` for 32-bit and refuses it by itself."""
    topic = unique_name()
    create_topic(own_broker, topic)
    entity = ("--bootstrap-server", own_broker.bootstrap, "--entity-type", "topics", "--entity-name", topic)
    alter = ("--alter", "--add-config", "segment.bytes=3000000000")
    refused = java.tool(tools.CONFIGS, *entity, *alter)
    assert refused.exit_code == 1
    told = refused.out + refused.err
    assert "InvalidConfigurationException" in told
    command = re.search(r"`kafka-features\.sh --bootstrap-server HOST:PORT (.*?)`", told)
    assert command is not None, told
    features(*command[1].split()).ok()
    java.tool(tools.CONFIGS, *entity, *alter).ok()
    assert "segment.bytes=3000000000" in java.tool(tools.CONFIGS, *entity, "--describe").ok()
