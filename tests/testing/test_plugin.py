"""The pytest plugin, in runs of pytest of its own."""

import os
import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE_SEC
from tests.testing.pytest_run import run_pytest

pytest_plugins = ("pytester",)


def test_fixtures_give_brokers_and_topics_of_ones_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = {}

        def test_topic(kafka):
            topic = kafka.topic("orders", partitions=2)
            kafka.produce(topic, "one")
            assert [record.value for record in kafka.records(topic)] == [b"one"]
            seen["topic"], seen["address"] = topic, kafka.bootstrap

        def test_topics_of_the_test_before_are_gone(kafka):
            assert kafka.bootstrap == seen["address"]
            assert kafka.topics() == []
            assert kafka.topic("orders") != seen["topic"]
            assert kafka.group() != kafka.group()

        def test_topic_that_the_test_deletes_is_no_error(kafka):
            kafka.delete_topic(kafka.topic())

        def test_fresh_broker(kafka_broker):
            assert kafka_broker.bootstrap != seen["address"]
            kafka_broker.create_topic("orders")
            kafka_broker.kill()

        def test_another_fresh_broker(kafka_broker):
            assert kafka_broker.topics() == []

        def test_cluster(kafka_cluster):
            assert len(kafka_cluster(2).brokers) == 2
            with kafka_cluster(1, auto_create_topics=False).brokers[0].store.outage():
                pass

        async def test_asyncio(kafka, kafka_broker):
            for one in (kafka, kafka_broker):
                await one.aio.create_topic("payments")
                await one.aio.produce("payments", "one")
                assert len(await one.aio.records("payments")) == 1
        """
    )
    run_pytest(pytester).assert_outcomes(passed=7)


@pytest.mark.nightly
def test_settings_are_overridden_and_assertions_not_rewritten(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        pytest.register_assert_rewrite("kafscale")  # as where it is installed from its wheel

        @pytest.fixture(scope="session")
        def kafka_settings():
            return {"auto_create_partitions": 3}
        """
    )
    pytester.makepyfile(
        """
        import sys

        def test_settings(kafka, kafka_broker, kafka_cluster):
            for one in (kafka, kafka_broker, kafka_cluster(1)):
                one.create_topic("orders", partitions=-1)
                assert one.produce("orders", "x", partition=2).partition == 2

        def test_wrong_setting(kafka_cluster):
            kafka_cluster(2, flush_interval=5)

        def test_import(kafka_broker):
            rewriting = [one for one in sys.meta_path if type(one).__module__ == "_pytest.assertion.rewrite"]
            assert sys.meta_path[: len(rewriting)] == rewriting != []
            loaded = [sys.modules[name] for name in ("kafscale.broker.process", "kafscale.testing.broker")]
            assert not any("@pytest_ar" in vars(module) for module in loaded)
        """
    )
    result = run_pytest(pytester)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*'flush_interval' is not a setting of a broker: did you mean flush_interval_ms*"]
    )


@pytest.mark.nightly
def test_workers_of_xdist_have_brokers_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, pathlib, pytest

        @pytest.mark.parametrize("number", range(8))
        def test_topic(kafka, number):
            topic = kafka.topic()
            kafka.produce(topic, str(number))
            assert len(kafka.records(topic)) == 1
            pathlib.Path(f"worker-{os.environ['PYTEST_XDIST_WORKER']}").write_text(kafka.bootstrap)
        """
    )
    run_pytest(pytester, "-n", "2").assert_outcomes(passed=8)
    addresses = [path.read_text() for path in pytester.path.glob("worker-*")]
    assert len(set(addresses)) == len(addresses) == 2


def test_plugin_loads_nothing_of_the_broker() -> None:
    code = (
        "import sys; before = set(sys.modules); import kafscale.testing.plugin; "
        "new = set(sys.modules) - before; "
        "print(*sorted(name for name in new if name.startswith(('kafscale', 'kafka'))))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run(
        [sys.executable, "-c", f"import pytest; {code}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SEC,
    )
    assert shown.stdout.split() == ["kafscale", "kafscale.testing", "kafscale.testing.plugin"]


def test_public_names_are_all_there() -> None:
    import kafscale.testing

    for name in kafscale.testing.__all__:
        assert getattr(kafscale.testing, name).__module__.startswith("kafscale.testing.")
        assert name in dir(kafscale.testing)
    with pytest.raises(AttributeError, match="has no attribute 'Broker'"):
        _ = kafscale.testing.Broker
