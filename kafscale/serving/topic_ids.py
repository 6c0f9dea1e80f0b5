"""Topics that a request names by their ids."""

import asyncio
import contextlib
import uuid
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafscale.serving.context import Broker

VIEW_LAG_SEC: Final = 1.0
"""How long the view may take to hear of a topic that the client knows from another broker."""

_MAX_IDS_TO_WAIT_FOR: Final = 256
"""A view that lags behind lacks few topics; a client may name any number."""


async def names_of(broker: "Broker", topic_ids: Collection[uuid.UUID | None]) -> Mapping[uuid.UUID, str]:
    """The names of those of the topics that there are.

    Waits `VIEW_LAG_SEC` for ids that the view does not know: the store has topics by their names only, and clients
    take UNKNOWN_TOPIC_ID for final.
    """
    view = broker.view
    unknown = [one for one in dict.fromkeys(topic_ids) if one is not None and view.topic_by_id(one) is None]
    if 0 < len(unknown) <= _MAX_IDS_TO_WAIT_FOR:
        with contextlib.suppress(TimeoutError):  # There are no such topics, as far as this broker knows.
            async with asyncio.timeout(VIEW_LAG_SEC):
                await view.wait_until(lambda: all(view.topic_by_id(one) is not None for one in unknown))
    names = {}
    for one in topic_ids:
        if one is not None and (record := view.topic_by_id(one)) is not None:
            names[one] = record.name
    return names
