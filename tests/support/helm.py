"""helm: the chart rendered with values, and the program itself for tests that install."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.k8s_install import HELM
from tests.support.process import clean_environment
from tests.support.waiting import PATIENCE_SEC

CHART = Path(__file__).resolve().parents[2] / "deploy/helm/kafscale"
TIMEOUT_SECONDS = PATIENCE_SEC
Manifest = dict[str, Any]
SAFE_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where PyYAML was built with it: what helm writes is long, and this is ten times as fast."""

_texts: dict[tuple[str, ...], str] = {}
"""The texts that helm rendered: many tests look at the same release."""


class HelmError(Exception):
    """helm refused; the message is its error output."""


def run_helm(
    *arguments: str, home: Path, kubeconfig: Path | None = None, timeout_s: float = TIMEOUT_SECONDS
) -> str:
    """The output of helm. `home`: a folder for its caches. Raises `HelmError` if it fails."""
    own = {f"HELM_{name}_HOME": str(home) for name in ("CACHE", "CONFIG", "DATA")}
    own["GOGC"] = "off"  # it ends before its garbage matters: a fifth of its time
    if kubeconfig is not None:
        own["KUBECONFIG"] = str(kubeconfig)
    done = subprocess.run(
        [str(HELM), *arguments],
        env=clean_environment() | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
    if done.returncode != 0:
        raise HelmError(f"{done.stdout}{done.stderr}")
    return done.stdout


def values_file(folder: Path, values: Mapping[str, Any]) -> Path:
    """A file of values; JSON is YAML."""
    path = folder / "values.json"
    path.write_text(json.dumps(values))
    return path


def rendered(
    folder: Path,
    values: Mapping[str, Any] | None = None,
    *,
    release: str = "demo",
    namespace: str = "streams",
    arguments: Sequence[str] = (),
) -> list[Manifest]:
    """The chart's objects for a release, from `helm template`. `folder`: for temporary files.

    Raises `HelmError` where the chart refuses the values.
    """
    asked = (release, namespace, json.dumps(values or {}), *arguments)
    if asked not in _texts:
        _texts[asked] = run_helm(
            "template",
            release,
            str(CHART),
            *("--namespace", namespace, "--values", str(values_file(folder, values or {}))),
            *arguments,
            home=folder,
        )
    return [document for document in yaml.load_all(_texts[asked], Loader=SAFE_LOADER) if document]


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    """Those of that kind, by name."""
    found = [each for each in manifests if each["kind"] == kind]
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def only(manifests: Sequence[Manifest], kind: str, name: str | None = None) -> Manifest:
    """The one of that kind, and of that name if one is given."""
    found = [each for each in of_kind(manifests, kind) if name in (None, each["metadata"]["name"])]
    assert len(found) == 1, [(each["kind"], each["metadata"]["name"]) for each in manifests]
    return found[0]
