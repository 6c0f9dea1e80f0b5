"""DescribeConfigs that names one resource thousands of times: hundreds of times as much to answer."""

import struct
from pathlib import Path

from kafscale.protocol.api_keys import ApiKey
from tests.support import wire
from tests.support.broker import running_broker
from tests.support.hand_made import frame, repeated, string
from tests.support.watcher import watching

BROKER = 4
TIMES = 100_000 - 1
ANSWER_MAX_BYTES = 64 << 10


def test_one_resource_named_100000_times_stalls_no_client(tmp_path: Path) -> None:
    named = struct.pack(">b", BROKER) + string("0") + struct.pack(">i", -1)
    request = frame(ApiKey.DESCRIBE_CONFIGS, 3, repeated(named, TIMES) + b"\x01\x01")
    with running_broker(tmp_path, flush_interval_ms=0) as broker, watching(broker) as watcher:
        with wire.connect(broker, 120.0) as attacker:
            attacker.send_bytes(request)
            assert len(attacker.receive_frame()) < ANSWER_MAX_BYTES
        watcher.wait_for_rounds()
