"""A broker that kills itself with SIGKILL at one of its steps in transactions.

    python -m tests.support.killed_broker before 5

is `kafscale serve` that dies right before the fifth of its writes that carry a transaction on, or right `after` it,
before the broker hears of it. Such writes are those of transactional keys of the metadata store, and journal entries.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final

from kafscale.commands.cli import main
from kafscale.metadata import keys
from kafscale.metadata.etcd.store import EtcdStore
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.objects.bucket.store import BucketStore
from kafscale.objects.local.store import LocalStore
from tests.support.broker import KAFSCALE, KafscaleBroker

TRANSACTIONAL: Final = (
    keys.TRANSACTIONS,
    keys.PARTITION_MARKERS,
    keys.GROUP_MARKERS,
    keys.PENDING_OFFSETS,
)


class KilledBroker(KafscaleBroker):
    """`kill_at`: when it dies, as in `before 5`; None: it is an ordinary broker."""

    kill_at: tuple[str, int] | None = None

    def launch_only(self) -> None:
        """Start it without waiting."""
        if self.kill_at is None:
            super().launch_only()
            return
        moment, step = self.kill_at
        command = [sys.executable, "-m", "tests.support.killed_broker", moment, str(step)]
        self.launch(command, self.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)})


def dying(moment: str, step: int) -> Callable[[Any, Callable[[Any], bool]], Any]:
    """A decorator of a store's methods that counts the calls which concern transactions, all together."""
    count = 0

    def decorate(method: Any, concerns: Callable[[Any], bool]) -> Any:
        @wraps(method)
        async def wrapped(self: Any, *arguments: Any) -> Any:
            nonlocal count
            if not concerns(arguments):
                return await method(self, *arguments)
            count += 1
            mine = count
            if mine == step and moment == "before":
                die()
            result = await _of(method(self, *arguments))
            if mine == step:
                die()
            return result

        return wrapped

    return decorate


async def _of(call: Awaitable[Any]) -> Any:
    return await call


def die() -> None:
    """As kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


def _writes_transactions(arguments: Any) -> bool:
    _, operations = arguments
    return any(one.key.startswith(TRANSACTIONAL) for one in operations)


def _writes_entry(arguments: Any) -> bool:
    return str(arguments[0]).endswith(".entry")


def patch(moment: str, step: int) -> None:
    """Let this process die there."""
    decorate = dying(moment, step)
    for metadata in (EtcdStore, SqliteStore):
        metadata.transact = decorate(metadata.transact, _writes_transactions)  # type: ignore[method-assign]
    for objects in (BucketStore, LocalStore):
        objects.put_if_absent = decorate(objects.put_if_absent, _writes_entry)  # type: ignore[method-assign]


if __name__ == "__main__":
    patch(sys.argv[1], int(sys.argv[2]))
    sys.argv[:] = [str(KAFSCALE), "serve"]
    main()
