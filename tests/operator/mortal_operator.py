"""An operator that is killed before or after one of its calls."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kafscale.operator.stores.same_cluster_store import SameClusterStore

T = TypeVar("T")


class KilledError(Exception):
    """The operator's process is gone."""


@dataclass
class Fate:
    """Which call is the last. `after`: whether it is carried out."""

    calls_left: int
    after: bool
    has_struck: bool = False

    async def call(self, action: Callable[[], Awaitable[T]]) -> T:
        if self.has_struck:
            raise KilledError
        self.calls_left -= 1
        if self.calls_left > 0:
            return await action()
        self.has_struck = True
        if self.after:
            await action()
        raise KilledError


class MortalStore(SameClusterStore):
    """The metadata store as an operator sees it that is to be killed."""

    def __init__(self, store: Any, revision: int, fate: Fate) -> None:
        super().__init__(store, revision)
        self._fate = fate

    async def get(self, key: str) -> Any:
        return await self._fate.call(lambda: super(MortalStore, self).get(key))

    async def transact(self, compares: Any, operations: Any) -> Any:
        return await self._fate.call(lambda: super(MortalStore, self).transact(compares, operations))


class MortalApi:
    """The Kubernetes API as such an operator sees it. `kube`: a `KubeMemory` or a `KubeUsers`."""

    def __init__(self, kube: Any, fate: Fate) -> None:
        self._kube = kube
        self._fate = fate

    async def find(self, *given: Any) -> Any:
        return await self._fate.call(lambda: self._kube.find(*given))

    async def list(self, *given: Any) -> Any:
        return await self._fate.call(lambda: self._kube.list(*given))

    async def request(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> Any:
        return await self._fate.call(lambda: self._kube.request(method, path, body=body))

    async def apply(self, manifest: Mapping[str, Any]) -> Any:
        return await self._fate.call(lambda: self._kube.apply(manifest))

    async def event(self, *given: Any, **named: Any) -> None:
        await self._fate.call(lambda: self._kube.event(*given, **named))
