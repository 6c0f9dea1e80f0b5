"""A broker that tests start as a fork behaves as one that is a new process."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import forked, wire
from tests.support.broker import KafscaleBroker
from tests.support.process import clean_environment
from tests.support.topics import create_topic
from tests.support.waiting import PATIENCE_SEC


@pytest.fixture(params=["fork", "new process"])
def broker(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KafscaleBroker]:
    monkeypatch.setattr(KafscaleBroker, "forks", request.param == "fork")
    started = KafscaleBroker(tmp_path)
    yield started
    started.close()


def test_after_a_clean_stop_it_starts_on_its_data(broker: KafscaleBroker) -> None:
    broker.start()
    create_topic(broker, "t")
    with wire.connect(broker) as connection:
        wire.produce(connection, "t", 0, wire.batch([b"x"]))
    broker.restart()
    with wire.connect(broker) as connection:
        assert wire.read_all(connection, "t", 0) == [(0, b"x")]
    broker.stop()
    assert broker.log_text().splitlines()[-1].endswith("stopped")


def test_it_ends_by_the_signal_that_kills_it(broker: KafscaleBroker) -> None:
    broker.start()
    assert broker.exit_code is None
    broker.send_signal(signal.SIGKILL)
    assert broker.wait_exit(PATIENCE_SEC) == -signal.SIGKILL
    broker.send_signal(signal.SIGTERM)  # as with Popen: nothing happens
    assert broker.exit_code == -signal.SIGKILL


def test_a_bad_setting_is_its_only_line_and_exit_status(broker: KafscaleBroker) -> None:
    broker.settings = {"flush_interval_ms": "soon"}
    broker.launch_only()
    assert broker.wait_exit(PATIENCE_SEC) == 2
    command, line = broker.log_text().splitlines()
    assert command.endswith("serve") and line.startswith("kafscale: KAFSCALE_FLUSH_INTERVAL_MS='soon'")


def test_waiting_for_a_running_one_ends_in_time(broker: KafscaleBroker) -> None:
    broker.start()
    with pytest.raises(AssertionError, match=r"did not end within 0\.01 s"):
        broker.wait_exit(0.01)


def test_it_has_a_session_and_a_folder_of_its_own(broker: KafscaleBroker) -> None:
    broker.start()
    assert os.getsid(broker.pid) == broker.pid
    assert Path(f"/proc/{broker.pid}/cwd").resolve() == broker.folder.resolve()


def test_other_settings_of_the_interpreter_need_a_new_process() -> None:
    assert forked.template().serves(clean_environment() | {"KAFSCALE_BROKER_ID": "3"})
    assert not forked.template().serves(clean_environment() | {"PYTHONASYNCIODEBUG": "1"})


def test_the_processor_time_of_a_fork_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafscaleBroker, "forks", True)
    broker = KafscaleBroker(tmp_path)
    broker.start()
    before = forked.cpu_of_reaped
    broker.stop()
    assert forked.cpu_of_reaped > before


def test_the_template_has_no_threads_that_a_fork_would_miss() -> None:
    assert len(os.listdir(f"/proc/{forked.template().pid}/task")) == 1
