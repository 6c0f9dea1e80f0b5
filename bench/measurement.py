"""One measured value with everything needed to identify it; the JSON file is a list of these."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """`workload` and `metric` name a row of the report, `peer` its column, `repeat` one of its samples."""

    peer: str
    workload: str
    metric: str
    value: float
    repeat: int
