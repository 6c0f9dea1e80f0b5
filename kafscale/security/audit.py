"""The audit log: what access rules refused, and what administrators changed. Lines of the logger `kafscale.audit`."""

import logging
import time
from collections.abc import Callable
from typing import Final

from kafscale.ops.line_limit import RepeatedLines
from kafscale.ops.metrics import Metrics
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.quoting import quoted
from kafscale.security.principal import Principal

logger = logging.getLogger("kafscale.audit")

MAX_ITEMS_SHOWN: Final = 20
"""Of the things that one request changed; a line says how many more there were."""


class Audit:
    """Refusals: one line a minute for a principal and kind of resource, and a counter. Changes: a line each."""

    def __init__(self, metrics: Metrics, now_sec: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._lines = RepeatedLines(now_sec)

    def refused(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str | None,
        api: ApiKey | None,
    ) -> None:
        """A client asked for what it must not do. `name`: None for any resource of the type. `api`: the request's."""
        self._metrics.authorization_refused(resource_type.name.lower(), operation.name.lower())
        client = quoted(str(principal))
        left_out = self._lines.admit((f"{operation} {resource_type}", client))
        if left_out is None:
            return
        extra: dict[str, object] = {
            "principal": client,
            "client": host,
            "operation": operation.name.lower(),
            "resource_type": resource_type.name.lower(),
        }
        if name is not None:
            extra["resource"] = quoted(name)
        if api is not None:
            extra["request"] = api.api_name
        if left_out:
            extra["left_out"] = left_out
        logger.warning("access denied", extra=extra)


def changed(principal: Principal, host: str, action: str, items: list[str]) -> None:
    """Log that the client changed something by an administrator's request; nothing if `items` is empty.

    `action`: such as `topics created`. `items`: as text, of clients maybe: each is cut.
    """
    if not items:
        return
    shown = ", ".join(quoted(item) for item in items[:MAX_ITEMS_SHOWN])
    more = len(items) - MAX_ITEMS_SHOWN
    logger.info(
        action,
        extra={
            "principal": quoted(str(principal)),
            "client": host,
            "items": shown + (f" and {more} more" if more > 0 else ""),
        },
    )
