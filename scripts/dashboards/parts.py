"""Parts that the dashboards' expressions share."""

from collections.abc import Mapping
from typing import Any, Final

from scripts.dashboards.model import Look, Panel, Query, Unit, Variable

OF_CLUSTER: Final = 'namespace="$namespace", cluster="$cluster"'
OF_POD: Final = f'{OF_CLUSTER}, pod=~"$pod"'

NAMESPACE: Final = Variable(name="namespace", series="kafscale_broker_info", label="namespace")
CLUSTER: Final = Variable(
    name="cluster", series='kafscale_broker_info{namespace="$namespace"}', label="cluster"
)
POD: Final = Variable(name="pod", series=f"kafscale_broker_info{{{OF_CLUSTER}}}", label="pod", several=True)


def total(metric: str, by: str = "", more: str = "", *, within: str = OF_POD) -> str:
    """The rate of a counter a second, summed up by labels."""
    return f"{_sum(by)}(rate({_selected(metric, more, within)}[$__rate_interval]))"


def risen(metric: str, by: str = "", more: str = "", *, within: str = OF_POD) -> str:
    """How much a counter has grown within the hour, summed up by labels."""
    return f"{_sum(by)}(increase({_selected(metric, more, within)}[1h]))"


def quantile(share: float, histogram: str, by: str = "", more: str = "", *, within: str = OF_POD) -> str:
    """The value that this share of a histogram's observations is below."""
    labels = f"le, {by}" if by else "le"
    rate = f"rate({_selected(f'{histogram}_bucket', more, within)}[$__rate_interval])"
    return f"histogram_quantile({share:g}, sum by ({labels}) ({rate}))"


def gauge(metric: str, by: str = "", more: str = "", *, how: str = "sum", within: str = OF_POD) -> str:
    """A gauge, added up or compared by labels."""
    return (
        f"{how} by ({by}) ({_selected(metric, more, within)})"
        if by
        else f"{how}({_selected(metric, more, within)})"
    )


def cluster_gauge(metric: str, by: str = "", more: str = "") -> str:
    """A gauge of the cluster as a whole: the largest value that a pod exports."""
    return gauge(metric, by, more, how="max", within=OF_CLUSTER)


def both(histogram: str, by: str = "", more: str = "", *, within: str = OF_POD) -> list[tuple[str, str]]:
    """The median, and what 99 in a hundred are below, each with its legend."""
    legend = f" {{{{{by}}}}}" if by else ""
    return [
        (quantile(share, histogram, by, more, within=within), f"{name}{legend}")
        for share, name in ((0.5, "half"), (0.99, "99%"))
    ]


def _sum(by: str) -> str:
    return f"sum by ({by}) " if by else "sum"


def _selected(metric: str, more: str, within: str) -> str:
    conditions = ", ".join(filter(None, (within, more)))
    return f"{metric}{{{conditions}}}" if conditions else metric


def lines(title: str, unit: Unit, *queries: tuple[str, str], stacked: bool = False, **more: Any) -> Panel:
    """A panel of lines over time: expressions, each with its legend."""
    return Panel(
        title=title,
        unit=unit,
        queries=[Query(expression=expression, legend=legend) for expression, legend in queries],
        stacked=stacked,
        **more,
    )


def process(within: str) -> list[Panel]:
    """CPU and memory of the chosen pods."""
    return [
        lines("CPU", Unit.CORES, (total("process_cpu_seconds_total", "pod", within=within), "{{pod}}")),
        lines(
            "Resident memory",
            Unit.BYTES,
            (gauge("process_resident_memory_bytes", "pod", within=within), "{{pod}}"),
        ),
    ]


def figure(
    title: str, expression: str, unit: Unit = Unit.COUNT, words: Mapping[int, str] | None = None, **more: Any
) -> Panel:
    """One value as it is now."""
    return Panel(
        title=title,
        unit=unit,
        queries=[Query(expression=expression)],
        look=Look.FIGURE,
        width=4,
        height=4,
        words=words,
        **more,
    )
