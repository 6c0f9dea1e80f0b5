"""`kafka-configs.sh --entity-type groups`: a group's configs are set, shown, and deleted."""

from tests.compat.conftest import Peer
from tests.support import java as tools
from tests.support.java import ToolResult, ToolServer
from tests.support.topics import unique_name
from tests.support.waiting import wait_until

TIMEOUT, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_a_groups_configs_are_added_described_and_deleted(java: ToolServer, broker: Peer) -> None:
    entity = ("--entity-type", "groups", "--entity-name", unique_name("configured"))

    others = (*entity[:3], unique_name("without"))

    def run(*arguments: str) -> ToolResult:
        return java.tool(tools.CONFIGS, "--bootstrap-server", broker.bootstrap, *arguments)

    def described(*arguments: str) -> str:
        return run("--describe", *entity, *arguments).ok()

    run("--alter", *entity, "--add-config", f"{TIMEOUT}=50000,{INTERVAL}=6000").ok()
    wait_until(lambda: f"{TIMEOUT}=50000" in described(), "the new value")
    assert f"DYNAMIC_GROUP_CONFIG:{INTERVAL}=6000" in described()
    assert f"DEFAULT_CONFIG:{INTERVAL}=5000" in run("--describe", *others, "--all").ok()
    assert f"{TIMEOUT}=50000" in run("--describe", "--entity-type", "groups").ok()  # it is listed, too

    run("--alter", *entity, "--delete-config", TIMEOUT).ok()
    wait_until(lambda: TIMEOUT not in described(), "the value is gone")
    assert f"{INTERVAL}=6000" in described()
    assert f"{TIMEOUT}=45000" in described("--all")

    for config, problem in (
        (f"{TIMEOUT}=1", f"{TIMEOUT} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (
            f"{TIMEOUT}=60001",
            f"{TIMEOUT} must be less than or equal to group.consumer.max.session.timeout.ms",
        ),
        (f"{INTERVAL}=soon", "Invalid value soon for configuration"),
        ("retention.ms=1", "Unknown group config name: retention.ms"),
    ):
        refused = run("--alter", *entity, "--add-config", config)
        assert refused.exit_code == 1
        assert "InvalidConfigurationException" in refused.out + refused.err
        assert problem in refused.out + refused.err
