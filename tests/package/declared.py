"""The dependencies that pyproject.toml declares: the base, and the extras."""

import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
_DECLARED: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = frozenset({"bench", "check", "test"})
EXTRAS: dict[str, list[str]] = {
    name: needed for name, needed in _DECLARED["optional-dependencies"].items() if name not in FOR_DEVELOPERS
}
"""The extras of users -> their own requirements."""


def base() -> set[str]:
    """The names of the packages that `pip install kafscale` brings."""
    return {canonicalize_name(Requirement(text).name) for text in _DECLARED["dependencies"]}


def of_extra(extra: str) -> Iterator[str]:
    """The names of the packages that an extra brings, also by the extras that it names."""
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == _DECLARED["name"]:
            for other in requirement.extras:
                yield from of_extra(other)
        else:
            yield canonicalize_name(requirement.name)


def modules_of_extras() -> list[str]:
    """The modules that are not there without any extra."""
    names = set(of_extra("all")) - base()
    return sorted(
        module
        for module, distributions in packages_distributions().items()
        if names.intersection(map(canonicalize_name, distributions))
    )
