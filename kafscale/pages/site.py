"""The pages over HTTP: who may see them, which page an address is, and what stands there if the broker cannot say."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from kafscale.ops.admin_requests import AdminAnswer, AdminRequest, text_answer
from kafscale.ops.health import Health
from kafscale.ops.metrics import Metrics
from kafscale.ops.metrics_token import MetricsToken
from kafscale.pages import collector
from kafscale.pages.access import NEEDS_TOKEN, NO_SUCH_HOST, PageAccess, Verdict
from kafscale.pages.broker_facts import BrokerFacts, HealthState
from kafscale.pages.collector import ServingBroker
from kafscale.pages.figures import FigureReader, Figures, Gauges
from kafscale.pages.frame import NAVIGATION, Asked, BadQueryError, Frame, asked_of, document
from kafscale.pages.group_pages import group_elsewhere_page, group_page, groups_page, selected_groups
from kafscale.pages.loop_reader import DEADLINE_SEC, LoopNotAnsweringError, LoopReader
from kafscale.pages.markup import Child, element, link, name_of
from kafscale.pages.overview_page import busiest_topics, groups_behind, health_alerts, overview_page
from kafscale.pages.request_page import request_page
from kafscale.pages.snapshots import ClusterSnapshot, GroupElsewhere, GroupSnapshot, TopicSnapshot
from kafscale.pages.store_page import store_page
from kafscale.pages.style import CONTENT_SECURITY_POLICY
from kafscale.pages.topic_pages import rows_of_page, selected_topics, topic_page, topics_page
from kafscale.settings.broker import Settings

PATHS: Final = frozenset(path for path, _ in NAVIGATION) | {"/topic", "/group"}

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}

_HTML: Final = "text/html; charset=utf-8"


class _NotFoundError(Exception):
    """There is no such topic or group; the message says which."""


class Site:
    """All pages of one broker, from its start on. `token`: what metrics need; None if they need none.

    Answers in the threads of the admin server. `open` and `close` are called on the event loop.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        health: Health,
        loop: asyncio.AbstractEventLoop,
        *,
        token: MetricsToken | None,
        places: tuple[str, str],
        now_sec: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
        deadline_sec: float = DEADLINE_SEC,
    ) -> None:
        """`places`: where records and metadata are, for people. `now_sec`: of a clock that only goes forward.

        `deadline_sec`: how long the event loop may take for an answer.
        """
        self._settings = settings
        self._metrics = metrics
        self._health = health
        self._access = PageAccess(settings, token)
        self._places = places
        self._loop = LoopReader(loop, deadline_sec)
        self._stopping = threading.Event()
        self._figures = FigureReader(metrics, now_sec, sleep or self._stopping.wait)
        self._now_sec = now_sec
        self._began_sec = now_sec()
        self._broker: Callable[[], ServingBroker | None] = lambda: None

    def open(self, broker: Callable[[], ServingBroker | None]) -> None:
        """Show that broker from now on; None while it starts. Called from other threads."""
        self._broker = broker

    def close(self) -> None:
        """Let no page wait for the event loop any more, which is about to wait for pages."""
        self._stopping.set()
        self._loop.close()

    def answer(self, request: AdminRequest) -> AdminAnswer | None:
        """See `AdminPages`."""
        if request.path not in PATHS:
            return None
        match self._access.verdict(request):
            case Verdict.FORBIDDEN:
                return _refused(HTTPStatus.FORBIDDEN, NEEDS_TOKEN)
            case Verdict.OTHER_HOST:
                return _refused(HTTPStatus.MISDIRECTED_REQUEST, NO_SUCH_HOST)
            case Verdict.NEEDS_LOGIN:
                scheme = 'Basic realm="Kafscale: the token of the metrics as password", charset="UTF-8"'
                needed = "the token of the metrics is needed"
                return _refused(HTTPStatus.UNAUTHORIZED, needed, WWW_Authenticate=scheme)
            case Verdict.ADMITTED:
                return self._admitted(request)

    def _admitted(self, request: AdminRequest) -> AdminAnswer:
        try:
            asked = asked_of(request.path, request.query)
        except BadQueryError as problem:
            return _refused(HTTPStatus.BAD_REQUEST, str(problem))
        broker = self._broker()
        try:
            if broker is None:
                return self._without_broker(asked, "The broker is starting", self._health_state())
            return self._shown(asked, broker)
        except LoopNotAnsweringError as problem:
            hung = HealthState(
                liveness_problems={"event_loop": str(problem)},
                readiness_problems=self._health.readiness_problems(),
                warnings=self._health.warnings(),
            )
            return self._without_broker(asked, "The broker does not answer", hung)
        except _NotFoundError as problem:
            found = (
                element("h1", "Not found"),
                element("p", *problem.args),
                element("p", link("/", "Overview")),
            )
            return self._answer(HTTPStatus.NOT_FOUND, asked, "Not found", found)

    def _without_broker(self, asked: Asked, title: str, health: HealthState) -> AdminAnswer:
        """A page without figures, which says why."""
        left = (
            element("h1", title),
            *health_alerts(health),
            element("p", "Reload this page, or let it refresh by itself.", class_="note"),
        )
        return self._answer(HTTPStatus.SERVICE_UNAVAILABLE, asked, title, left)

    def _shown(self, asked: Asked, broker: ServingBroker) -> AdminAnswer:
        # First, so that a hung loop is reported at once.
        cluster = self._loop.read(partial(collector.cluster_state, broker))
        figures = self._figures.read(broker)
        title, children = self._page(asked, broker, cluster, figures)
        return self._answer(HTTPStatus.OK, asked, title, children, cluster.cluster_id)

    def _page(
        self, asked: Asked, broker: ServingBroker, cluster: ClusterSnapshot, figures: Figures
    ) -> tuple[str, list[Child]]:
        match asked.path:
            case "/topics":
                return "Topics", self._topics(asked, broker, figures)
            case "/topic":
                return asked.name[:100], self._topic(asked, broker, figures)
            case "/groups":
                return "Groups", self._groups(asked, broker, figures)
            case "/group":
                return "Group", self._group(asked, broker, cluster, figures)
            case "/stores":
                return "Stores", store_page(self._facts(), figures)
            case "/requests":
                return "Requests", request_page(asked, self._facts(), figures)
            case _:
                return "Overview", self._overview(asked, broker, cluster, figures)

    def _overview(
        self, asked: Asked, broker: ServingBroker, cluster: ClusterSnapshot, figures: Figures
    ) -> list[Child]:
        topics, groups = busiest_topics(figures), groups_behind(figures)
        leaders = self._loop.read(partial(collector.topic_leaders, broker, topics))
        summaries = self._loop.read(partial(collector.group_summaries, broker, groups))
        found = [summaries[group_id] for group_id in groups if group_id in summaries]
        return overview_page(asked, self._facts(), figures, cluster, leaders, found)

    def _topics(self, asked: Asked, broker: ServingBroker, figures: Figures) -> list[Child]:
        names = selected_topics(asked, figures)
        shown = rows_of_page(names, asked.page)
        leaders = self._loop.read(partial(collector.topic_leaders, broker, shown))
        return topics_page(asked, figures, names, leaders)

    def _topic(self, asked: Asked, broker: ServingBroker, figures: Figures) -> list[Child]:
        state: TopicSnapshot | None = self._loop.read(
            partial(collector.topic_state, broker, asked.name, asked.page)
        )
        if state is None:
            raise _NotFoundError("There is no topic ", name_of(asked.name), ".")
        return topic_page(asked, figures, state, self._facts().month_dollars_of(figures, asked.name))

    def _groups(self, asked: Asked, broker: ServingBroker, figures: Figures) -> list[Child]:
        group_ids = selected_groups(asked, figures)
        shown = rows_of_page(group_ids, asked.page)
        summaries = self._loop.read(partial(collector.group_summaries, broker, shown))
        return groups_page(asked, figures, group_ids, summaries)

    def _group(
        self, asked: Asked, broker: ServingBroker, cluster: ClusterSnapshot, figures: Figures
    ) -> list[Child]:
        found: GroupSnapshot | GroupElsewhere | None = self._loop.read(
            partial(collector.group_state, broker, asked.name, asked.page)
        )
        match found:
            case None:
                raise _NotFoundError("There is no group ", name_of(asked.name), ".")
            case GroupElsewhere():
                endpoints = {one.broker_id: ", ".join(one.endpoints) for one in cluster.brokers}
                return group_elsewhere_page(asked.name, found, endpoints)
            case GroupSnapshot():
                return group_page(asked, figures, found)

    def _facts(self) -> BrokerFacts:
        return BrokerFacts(
            health=self._health_state(),
            metrics=self._metrics,
            gauges=Gauges(self._metrics),
            up_sec=self._now_sec() - self._began_sec,
            lease_ttl_sec=self._settings.lease_ttl_sec,
            records_at=self._places[0],
            metadata_at=self._places[1],
        )

    def _health_state(self) -> HealthState:
        return HealthState(
            liveness_problems=self._health.liveness_problems(),
            readiness_problems=self._health.readiness_problems(),
            warnings=self._health.warnings(),
        )

    def _answer(
        self,
        status: HTTPStatus,
        asked: Asked,
        title: str,
        children: "list[Child] | tuple[Child, ...]",
        cluster_id: str = "",
    ) -> AdminAnswer:
        frame = Frame(
            broker_id=self._metrics.broker_id,
            version=self._metrics.version,
            cluster_id=cluster_id,
            shown_at=f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC",
            asked=asked,
        )
        return AdminAnswer(status, _HTML, document(frame, title, *children), HEADERS)


def _refused(status: HTTPStatus, text: str, **headers: str) -> AdminAnswer:
    return text_answer(status, text, Cache_Control="no-store", **headers)
