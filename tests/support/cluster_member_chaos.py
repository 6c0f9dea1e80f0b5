"""A cluster and the members of a group are in trouble at the same time."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.cluster_chaos import ChaosRun
from tests.support.member_chaos import MemberChaos
from tests.support.nemesis import Trouble


def trouble_both(
    run: ChaosRun, troubles: Sequence[Trouble], chaos: MemberChaos[Any], seconds: float
) -> dict[str, int]:
    """For that long, and until each kind of trouble has happened; returns how often the cluster's have.

    At the end all members go on, and all brokers and stores are there.
    """
    with ThreadPoolExecutor(1, "troubles of the cluster") as pool:
        future = pool.submit(run.run, troubles, seconds)
        try:
            chaos.run(seconds, goes_on=lambda: not future.done())
        finally:
            chaos.calm()
        return future.result()
