"""A member of a consumer group as a process, which writes its events into a journal and commits as it works.

`python -m tests.support.group_member_process --client librdkafka --bootstrap ... ` (see `--help`).
It runs until SIGTERM, then leaves the group as one should; once its journal is there it understands SIGTERM.
It may be killed or stopped at any moment.
"""

import argparse
import asyncio
import signal
import sys
import threading
import time
from pathlib import Path

from tests.support.group_journal import Ended, Journal
from tests.support.group_member_work import CONSUMER_PROTOCOL, MemberOptions, Work

CLIENTS = ("librdkafka", CONSUMER_PROTOCOL, "kafka-python", "aiokafka")


def run(options: MemberOptions, work: Work) -> None:
    """Only this client is imported: many of these processes start on few processors."""
    match options.client:
        case "librdkafka" | "librdkafka-consumer-protocol":
            from tests.support.group_member_librdkafka import LibrdkafkaMember

            LibrdkafkaMember(options, work).run()
        case "kafka-python":
            from tests.support.group_member_kafka_python import KafkaPythonMember

            KafkaPythonMember(options, work).run()
        case "aiokafka":
            from tests.support.group_member_aiokafka import run_aiokafka

            asyncio.run(run_aiokafka(options, work))
        case _:
            raise ValueError(f"client {options.client!r}: one of {CLIENTS}")


def parse(arguments: list[str]) -> MemberOptions:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", required=True, choices=CLIENTS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--assignor", default="range")
    parser.add_argument("--session-timeout-ms", type=int, default=2000)
    parser.add_argument("--max-poll-interval-ms", type=int, default=30_000)
    return MemberOptions(**vars(parser.parse_args(arguments)))


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    work = Work(Journal(options.journal), stopping)
    run(options, work)
    work.journal.write(Ended(time_s=time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
