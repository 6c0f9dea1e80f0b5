"""The table of the package's extras: which packages each brings, by pyproject.toml, and what it is for."""

import tomllib
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parent.parent
FOR_DEVELOPERS: Final = frozenset({"bench", "check", "test"})
_NONE: Final = ""
_FOR: Final = {
    _NONE: "`kafscale serve` on a folder, with plaintext, SASL PLAIN and SCRAM, access rules; its commands",
    "cluster": "etcd, buckets, TLS listeners, SASL OAUTHBEARER, `kafscale lifecycle`",
    "arrow": "topics as Arrow; for those in a bucket or of a cluster `cluster`, too",
    "iceberg": "the [export of small topics without Spark](export-without-spark.md)",
    "spark": "the [lake export](lake-export.md) and the [Spark source](spark-source.md); they need Java, too",
    "operator": "`kafscale operator` in Kubernetes",
    "all": "all of them",
}


def extras_rows() -> list[tuple[str, str, str]]:
    """Installation, what it brings, what it is for. Raises `KeyError` for an extra that is not described."""
    project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    brought = {_NONE: project["dependencies"], **project["optional-dependencies"]}
    undescribed = brought.keys() - _FOR.keys() - FOR_DEVELOPERS
    if undescribed:
        raise KeyError(f"extras that scripts/extras_table.py does not describe: {sorted(undescribed)}")
    return [
        (
            f"`pip install 'kafscale[{extra}]'`" if extra else "`pip install kafscale`",
            _names(brought[extra]),
            text,
        )
        for extra, text in _FOR.items()
    ]


def _names(requirements: list[str]) -> str:
    found = []
    for requirement in map(Requirement, requirements):
        if requirement.name == "kafscale":
            found += [f"`{extra}`" for extra in sorted(requirement.extras)]
        else:
            where = " (not on Windows, nor with PyPy)" if requirement.marker else ""
            found.append(requirement.name + where)
    return ", ".join(found)
