"""The troubles of the chaos tests: one episode of each kind, which ends with all well again."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from tests.support.cluster import Cluster
from tests.support.history import History
from tests.support.object_store_proxy import Fault, FaultKind, ObjectStoreProxy
from tests.support.waiting import PATIENCE_SEC, wait_until

PROGRESS_TIMEOUT_S = PATIENCE_SEC
WRITES = frozenset({"PUT", "POST"})
UPLOADS = frozenset({"PUT"})
ENTRIES = r"\.entry$"
HELD_UPLOADS = 3  # one of each broker, or several of one


class Etcd(Protocol):
    """The metadata servers, as targets of trouble."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The parts of troubles. `generator` makes all random decisions."""

    cluster: Cluster
    topic: str
    etcd: Etcd
    proxy: ObjectStoreProxy
    history: History
    generator: random.Random
    lease_ttl_s: float
    say: Callable[[str], None]

    def leading(self) -> int:
        """A broker that leads some partition; after an outage of etcd leases may end once more."""
        leaders = wait_until(
            lambda: set(self.cluster.leaders(self.topic).values()) & set(self.cluster.live),
            f"a broker leads {self.topic}",
        )
        return self.generator.choice(sorted(leaders))

    def a_while(self, least_s: float, most_s: float) -> None:
        """The random moment of a trouble; no condition is awaited."""
        time.sleep(self.generator.uniform(least_s, most_s))

    def wait_for_acknowledgements(self, why: str, count: int = 20) -> None:
        """Wait until a producer has a new acknowledgement."""
        before = self.history.count()
        wait_until(lambda: self.history.count() >= before + count, f"progress {why}", PROGRESS_TIMEOUT_S)

    def start(self, broker_id: int) -> None:
        """Start a broker, and log how long it took to be ready."""
        began = time.monotonic()
        self.cluster.start(broker_id)
        self.say(f"broker {broker_id} is ready after {time.monotonic() - began:.2f} s")

    def led_again(self) -> None:
        """Wait until all partitions have live leaders, and log how long that took."""
        seconds = self.cluster.wait_until_led(self.topic)
        self.say(
            f"all partitions are led by {sorted(set(self.cluster.leaders(self.topic).values()))}, "
            f"{seconds:.2f} s"
        )


Trouble = Callable[[Scene], None]


def kill(scene: Scene) -> None:
    """kill -9 of a leader; it returns at once, or after others have been elected."""
    victim = scene.leading()
    scene.say(f"broker {victim} is killed")
    scene.cluster.kill(victim)
    if scene.generator.random() < 0.5:
        scene.led_again()
        scene.wait_for_acknowledgements("without the broker that was killed")
    else:
        scene.a_while(0.0, scene.lease_ttl_s / 2)
    scene.start(victim)
    scene.led_again()


def pause_past_the_lease(scene: Scene) -> None:
    """SIGSTOP of a leader until others lead, then SIGCONT: it resumes with its full buffers."""
    victim = scene.leading()
    scene.say(f"broker {victim} is stopped")
    scene.cluster.pause(victim)
    scene.led_again()
    scene.a_while(0.0, 1.0)
    scene.say(f"broker {victim} goes on")
    scene.cluster.resume(victim)
    scene.wait_for_acknowledgements("after a stopped broker woke up")
    scene.led_again()


def pause_within_the_lease(scene: Scene) -> None:
    """SIGSTOP for about the lease's time: whether another broker was elected is open."""
    victim = scene.leading()
    seconds = scene.generator.uniform(0.3, 1.2) * scene.lease_ttl_s
    scene.say(f"broker {victim} is stopped for {seconds:.2f} s")
    scene.cluster.pause(victim)
    time.sleep(seconds)
    scene.cluster.resume(victim)
    scene.wait_for_acknowledgements("after a short stop")
    scene.led_again()


def rolling_restart(scene: Scene) -> None:
    """SIGTERM and start of one broker after the other."""
    for broker_id in scene.generator.sample(sorted(scene.cluster.brokers), len(scene.cluster.brokers)):
        seconds = scene.cluster.stop(broker_id)
        scene.say(f"broker {broker_id} stopped within {seconds:.2f} s")
        scene.led_again()
        scene.start(broker_id)
        scene.wait_for_acknowledgements("in a rolling restart")


def etcd_away(scene: Scene) -> None:
    """etcd does not answer, for less or for more than the lease's time."""
    seconds = scene.generator.choice([0.3, 0.8, 1.5, 2.5]) * scene.lease_ttl_s
    scene.say(f"etcd does not answer for {seconds:.2f} s")
    scene.etcd.pause()
    try:
        time.sleep(seconds)
    finally:
        scene.etcd.resume()
    scene.wait_for_acknowledgements("with etcd back")
    scene.led_again()


OBJECT_STORE_FAULTS = [
    Fault(kind=FaultKind.DELAY, probability=0.6, seconds=(0.05, 1.0)),
    Fault(kind=FaultKind.DROP_REPLY, methods=WRITES, probability=0.4),
    Fault(kind=FaultKind.DROP_REPLY, probability=0.3),
    Fault(kind=FaultKind.SLOW_DOWN, probability=0.5),
    Fault(kind=FaultKind.DROP_REQUEST, probability=0.4),
    Fault(kind=FaultKind.LATE, methods=UPLOADS, probability=0.4, seconds=(0.1, 3.0)),
    Fault(kind=FaultKind.BLACK_HOLE, probability=0.2),
]


def object_store_troubles(scene: Scene) -> None:
    """S3 is slow, forgets to answer, answers 503, breaks connections, delivers late, or is gone; then it is back."""
    fault = scene.generator.choice([*OBJECT_STORE_FAULTS, None])
    if fault is None:
        scene.say("S3 refuses connections")
        scene.proxy.refuse_connections()
        scene.a_while(0.5, 2.0)
        scene.proxy.accept_connections()
    else:
        scene.say(f"S3: {fault.kind.name} of {fault.probability:.0%}")
        with scene.proxy.fault(fault):
            scene.a_while(1.0, 2.5)
    scene.wait_for_acknowledgements("with S3 as it was")


def uploads_of_the_dead(scene: Scene) -> None:
    """A leader is killed while its uploads are held back; they arrive when others lead."""
    kind = scene.generator.choice([FaultKind.LATE, FaultKind.DELAY])
    with _held_uploads(scene, kind):
        victim = scene.leading()
        scene.say(f"{scene.proxy.held} uploads are held ({kind.name}), broker {victim} is killed")
        scene.cluster.kill(victim)
        scene.a_while(0.0, scene.lease_ttl_s)
    scene.led_again()
    _release(scene)
    scene.start(victim)
    scene.wait_for_acknowledgements("after uploads of a dead broker arrived")
    scene.led_again()


def uploads_of_the_sleeping(scene: Scene) -> None:
    """A leader is stopped while its uploads are held back; they arrive when others lead, and it wakes."""
    with _held_uploads(scene, FaultKind.DELAY):
        victim = scene.leading()
        scene.say(f"{scene.proxy.held} uploads are held, broker {victim} is stopped")
        scene.cluster.pause(victim)
        scene.a_while(0.0, scene.lease_ttl_s)
    scene.led_again()
    _release(scene)
    _wake(scene, victim)


def asleep_before_publishing(scene: Scene) -> None:
    """A leader is stopped while its uploads are held back; they arrive, others lead; it wakes to publish them."""
    with _held_uploads(scene, FaultKind.DELAY):
        victim = scene.leading()
        scene.say(f"{scene.proxy.held} uploads are held, broker {victim} is stopped")
        scene.cluster.pause(victim)
    _release(scene)
    scene.led_again()
    scene.wait_for_acknowledgements("while a broker that has uploaded sleeps")
    _wake(scene, victim)


@contextlib.contextmanager
def _held_uploads(scene: Scene, kind: FaultKind) -> Iterator[None]:
    """Some flushes are held back, also after the block."""
    seconds = (2 * scene.lease_ttl_s, 5 * scene.lease_ttl_s)  # unless they are released
    held = Fault(kind=kind, methods=UPLOADS, pattern=ENTRIES, seconds=seconds)
    with scene.proxy.fault(held):
        wait_until(lambda: scene.proxy.held >= HELD_UPLOADS, "uploads are held back", PROGRESS_TIMEOUT_S)
        yield


def _release(scene: Scene) -> None:
    scene.say(f"{scene.proxy.held} uploads arrive now")
    scene.proxy.release()


def _wake(scene: Scene, broker_id: int) -> None:
    scene.say(f"broker {broker_id} goes on")
    scene.cluster.resume(broker_id)
    scene.wait_for_acknowledgements("after a broker woke up whose uploads were held back")
    scene.led_again()
