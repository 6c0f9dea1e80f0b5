"""`kafscale pod`: asks Kubernetes for the broker's zone and external address, and waits until they are known."""

import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from kafscale.operator.pods.api import pod_api
from kafscale.operator.pods.place import Answer, Place, Questions, needs_node, place, placed, questions
from kafscale.ops.health import STARTING, Health
from kafscale.settings.broker import Settings, load_settings

logger = logging.getLogger(__name__)

# A broker without its zone works, at a higher cost; without its external address it is useless to clients outside.
RACK_PATIENCE_SEC = 30.0
# How long the API server is asked before its previous answer to this pod is used.
REACH_PATIENCE_SEC = 10.0
FIRST_DELAY_SEC = 0.5
LAST_DELAY_SEC = 5.0
REPORT_EVERY_SEC = 30.0


Preparation = Callable[[Health], Awaitable[Settings]]


def preparation(environment: Mapping[str, str], service_account: Path) -> Preparation | None:
    """The step before a broker in a pod serves; None if there is nothing to ask.

    It returns the settings, or raises `SettingError` if the answers are invalid. Raises `SettingError` itself if the
    environment is incomplete.
    """
    asked = questions(environment)
    if asked is None:
        return None
    objects = pod_api(environment, service_account)
    memory = PlaceMemory(Path(tempfile.gettempdir()) / "kafscale-place.json")

    async def prepare(health: Health) -> Settings:
        finder = PlaceFinder(asked, objects, memory, on_wait=health.set_not_ready)
        found = await finder.find()
        health.set_not_ready(STARTING)
        if found.rack_missing is not None:
            reason = f"the broker has no zone: {found.rack_missing.reason}"
            logger.warning(reason)
            health.add_warning("rack", lambda: reason)
        logger.info("found out from Kubernetes", extra=dict(found.variables))
        return load_settings(placed(environment, found.variables))

    return prepare


class Objects(Protocol):
    """Reads Kubernetes objects."""

    async def node(self, name: str) -> Answer: ...

    async def service(self, namespace: str, name: str) -> Answer: ...


class PlaceMemory:
    """Previous answers, in a file that lives as long as the pod: a container that restarts while the API server is
    unavailable needs them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, asked: Questions) -> Mapping[str, str] | None:
        """The variables, if the questions were the same; else None."""
        try:
            known = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("what was known of the place is of no use", extra={"error": str(error)})
            return None
        if not isinstance(known, dict) or known.get("asked") != asdict(asked):
            return None
        return {str(name): str(value) for name, value in known["variables"].items()}

    def write(self, asked: Questions, variables: Mapping[str, str]) -> None:
        """Best-effort; a failure is only logged."""
        text = json.dumps({"asked": asdict(asked), "variables": dict(variables)})
        new = self._path.with_name(f"{self._path.name}.new")
        try:
            new.write_text(text)
            os.replace(new, self._path)
        except OSError as error:
            logger.warning("what is known of the place cannot be kept", extra={"error": str(error)})


class PlaceFinder:
    """Asks until everything is known. `on_wait`: called with the reason of each wait; `clock`: monotonic seconds."""

    def __init__(
        self,
        asked: Questions,
        objects: Objects,
        memory: PlaceMemory,
        on_wait: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._asked = asked
        self._objects = objects
        self._memory = memory
        self._on_wait = on_wait
        self._clock = clock
        self._sleep = sleep
        self._began_sec = clock()
        self._reported: tuple[str, float] | None = None

    async def find(self) -> Place:
        """The additional variables of the broker; without the zone if that is not available."""
        delay_sec = FIRST_DELAY_SEC
        while True:
            found = await self._ask()
            if found.is_complete:
                self._memory.write(self._asked, found.variables)
                return found
            acceptable = self._acceptable(found, self._clock() - self._began_sec)
            if acceptable is not None:
                return acceptable
            self._report_wait(found.reason)
            await self._sleep(delay_sec)
            delay_sec = min(delay_sec * 2, LAST_DELAY_SEC)

    def _acceptable(self, found: Place, waited_sec: float) -> Place | None:
        """An incomplete place that is acceptable after that wait, or None."""
        if found.is_out_of_reach:
            known = self._memory.read(self._asked) if waited_sec >= REACH_PATIENCE_SEC else None
            if known is None:
                return None
            logger.warning("the place is taken as it was found before", extra={"reason": found.reason})
            return Place(variables=known)
        only_rack = found.address_missing is None
        return found if only_rack and waited_sec >= RACK_PATIENCE_SEC else None

    async def _ask(self) -> Place:
        asked, service, node = self._asked, None, None
        if asked.service is not None:
            service = await self._objects.service(asked.namespace, asked.service)
        if needs_node(asked, service):
            node = await self._objects.node(asked.node)
        return place(asked, node, service)

    def _report_wait(self, reason: str) -> None:
        """Logs each new reason once, and repeats it periodically."""
        self._on_wait(reason)
        now_sec = self._clock()
        if (
            self._reported is None
            or self._reported[0] != reason
            or now_sec - self._reported[1] >= REPORT_EVERY_SEC
        ):
            self._reported = (reason, now_sec)
            logger.info("waiting for what Kubernetes knows of this broker", extra={"reason": reason})
