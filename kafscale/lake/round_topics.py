"""The topics of each round of an export that keeps going: found again for each, so that none needs a restart."""

import logging
from collections.abc import Callable

from kafscale.errors import KafscaleError
from kafscale.lake.config_topics import FoundTopics
from kafscale.lake.events import ExportEvents

_logger = logging.getLogger(__name__)


class RoundTopics:
    """Finds the topics of each round, and reports those that left and those that cannot be exported.

    `find` is called for every round but the first, whose topics are `first`. If it fails, because a store does not
    answer, say, the round has the topics of the one before.
    """

    def __init__(self, first: FoundTopics, find: Callable[[], FoundTopics], events: ExportEvents) -> None:
        self._found = first
        self._find = find
        self._events = events
        self._is_first = True

    def next(self) -> FoundTopics:
        """The topics of the next round. Those with a problem are reported as failed."""
        before = self._found
        if not self._is_first:
            try:
                self._found = self._find()
            except KafscaleError as error:
                _logger.warning("the topics could not be looked up, the last round's are exported: %s", error)
        self._is_first = False
        for topic in sorted(
            {*before.topics, *before.problems} - {*self._found.topics, *self._found.problems}
        ):
            self._events.topic_left(topic)
        for topic, problem in self._found.problems.items():
            self._events.topic_failed(topic, problem)
        return self._found
