"""Takes part in leader election: reads and writes the Lease."""

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime
from typing import Any

from kafscale.operator import api_names
from kafscale.operator.errors import KubeError, KubeRefusedError
from kafscale.operator.kube.client import KubeClient, Manifest
from kafscale.operator.kube.kinds import LEASE
from kafscale.operator.leading.election import DURATION_SEC, RETRY_SEC, Election, LeaseState, Write

_logger = logging.getLogger(__name__)

# A later answer is of no use to a leader.
REQUEST_SEC = 5.0


class ElectionDriver:
    """One candidate. `run` runs until cancelled; `leads` is true while this operator may write."""

    def __init__(self, kube: KubeClient, namespace: str, lease: str, identity: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._lease = lease
        self._identity = identity
        self._election = Election(identity)
        self._found: Manifest | None = None
        self._changed = asyncio.Event()

    def leads(self) -> bool:
        """True while this operator is the leader; check it before every write."""
        return self._election.leads(time.monotonic())

    async def run(self) -> None:
        """Reads and renews the lease periodically."""
        while True:
            led = self.leads()
            try:
                async with asyncio.timeout(REQUEST_SEC):
                    await self._round()
            except (KubeError, TimeoutError) as error:
                _logger.warning("the lease %s could not be renewed: %s", self._lease, error or "no answer")
            if led != self.leads():
                _logger.info("%s %s", self._identity, "leads" if self.leads() else "has lost leadership")
            self._changed.set()
            await asyncio.sleep(RETRY_SEC)

    async def wait_until(self, leads: bool) -> None:
        """Returns once `leads()` is `leads`."""
        while self.leads() is not leads:
            self._changed.clear()
            # Leadership ends by the clock alone when no answer comes.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._changed.wait()

    async def resign(self) -> None:
        """Releases the lease, so that another candidate need not wait. This operator must have stopped working."""
        write = self._election.resign(_lease_state(self._found))
        if write is None:
            return
        try:
            async with asyncio.timeout(REQUEST_SEC):
                await self._write(write)
        except (KubeError, TimeoutError) as error:
            _logger.info("the lease %s could not be released: %s", self._lease, error or "no answer")

    async def _round(self) -> None:
        begun = time.monotonic()
        self._found = await self._kube.find(LEASE, self._namespace, self._lease)
        write = self._election.look(_lease_state(self._found), begun)
        if write is None:
            return
        try:
            self._found = await self._write(write)
        except KubeRefusedError as refusal:
            if refusal.reason not in ("Conflict", "AlreadyExists"):
                raise
            return  # another candidate was faster: the next round says who
        self._election.written(begun)

    async def _write(self, write: Write) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before: dict[str, Any] = {} if self._found is None else self._found["spec"]
        spec = {
            "holderIdentity": write.holder,
            "leaseDurationSeconds": int(DURATION_SEC),
            "leaseTransitions": write.transitions,
            "acquireTime": now if write.acquired else before.get("acquireTime", now),
            "renewTime": now,
        }
        metadata: dict[str, Any] = {"name": self._lease, "namespace": self._namespace}
        lease = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}
        if write.version is None:
            metadata["labels"] = {api_names.MANAGED_BY: api_names.FIELD_MANAGER}
            return await self._kube.create(lease)
        metadata["resourceVersion"] = write.version
        return await self._kube.replace(lease)


def _lease_state(lease: Manifest | None) -> LeaseState | None:
    if lease is None:
        return None
    spec = lease.get("spec", {})
    return LeaseState(
        holder=spec.get("holderIdentity") or "",
        duration_sec=float(spec.get("leaseDurationSeconds") or DURATION_SEC),
        transitions=spec.get("leaseTransitions") or 0,
        version=lease["metadata"]["resourceVersion"],
    )
