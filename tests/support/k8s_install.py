"""Kubernetes for the tests, built with Go into `.tools/k8s`: the control plane, and helm, each on its own.

`python -m tests.support.k8s_install helm` or `control-plane`, or both. What is there already is left alone.
"""

import fcntl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support import tool_cache
from tests.support.etcd_install import etcd_missing, install_etcd
from tests.support.go_programs import GoPrograms, build, remove
from tests.support.installing import TOOLS, CannotInstallError

K8S = TOOLS / "k8s"
KUBE_APISERVER = K8S / "kube-apiserver"
KUBE_CONTROLLER_MANAGER = K8S / "kube-controller-manager"
HELM = K8S / "helm"

KUBERNETES_VERSION = "v1.34.2"
HELM_VERSION = "v3.19.5"  # made with the client libraries of that Kubernetes: their packages compile once

_MAJOR, _MINOR = KUBERNETES_VERSION.removeprefix("v").split(".")[:2]
_PROGRAMS = {
    "control-plane": GoPrograms(
        module="k8s.io/kubernetes",
        version=KUBERNETES_VERSION,
        packages=("k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        replaced_version=f"v0{KUBERNETES_VERSION.removeprefix('v1')}",
        variables=(
            ("k8s.io/component-base/version.gitVersion", KUBERNETES_VERSION),
            ("k8s.io/component-base/version.gitMajor", _MAJOR),
            ("k8s.io/component-base/version.gitMinor", _MINOR),
        ),
    ),
    "helm": GoPrograms(
        module="helm.sh/helm/v3",
        version=HELM_VERSION,
        packages=("helm.sh/helm/v3/cmd/helm",),
        variables=(
            ("helm.sh/helm/v3/internal/version.version", HELM_VERSION),
            # The cluster's capabilities for `helm template` and `helm lint`.
            ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", _MAJOR),
            ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", _MINOR),
            ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", _MAJOR),
            ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", _MINOR),
        ),
    ),
}


def k8s_missing() -> str | None:
    """The reason why tests against a real control plane cannot run here, or None."""
    if not _is_current("control-plane"):
        return (
            f"kube-apiserver and kube-controller-manager {KUBERNETES_VERSION} are not built in .tools/k8s "
            "(needs Go; run `python -m tests.support.k8s_install control-plane`)"
        )
    return etcd_missing()


def helm_missing() -> str | None:
    """The reason why tests with helm cannot run here, or None."""
    if _is_current("helm"):
        return None
    return (
        f"helm {HELM_VERSION} is not built in .tools/k8s "
        "(needs Go; run `python -m tests.support.k8s_install helm`)"
    )


def install_control_plane() -> str:
    """Install kube-apiserver and kube-controller-manager, and etcd. Returns a summary.

    Raises `CannotInstallError`.
    """
    with _alone():
        install_etcd()
        return _install("control-plane")


def install_helm() -> str:
    """Install helm; returns a summary. Raises `CannotInstallError`."""
    with _alone():
        return _install("helm")


INSTALLERS: dict[str, Callable[[], str]] = {"helm": install_helm, "control-plane": install_control_plane}


def main(arguments: list[str]) -> int:
    """Install the named tools. Exit code 1 if one cannot be installed, 2 for an unknown name."""
    if not arguments or not set(arguments) <= set(INSTALLERS):
        print(f"usage: python -m tests.support.k8s_install {'|'.join(INSTALLERS)} ...", file=sys.stderr)
        return 2
    for name in arguments:
        try:
            print(f"{name}: {INSTALLERS[name]()}", flush=True)
        except CannotInstallError as error:
            print(f"{name}: not installed: {error}", file=sys.stderr, flush=True)
            return 1
    return 0


def _install(name: str) -> str:
    programs = _PROGRAMS[name]
    if _is_current(name):
        return "there already"
    stamp = K8S / f"{name}.version"
    stamp.unlink(missing_ok=True)
    remove(K8S, programs)
    if tool_cache.take(programs.names, programs.stamp, K8S):
        done = "copied from the cache"
    else:
        build(programs, K8S)
        tool_cache.keep(programs.names, programs.stamp, K8S)
        done = "built with Go"
    stamp.write_text(programs.stamp)
    return done


def _is_current(name: str) -> bool:
    programs, stamp = _PROGRAMS[name], K8S / f"{name}.version"
    built = all((K8S / program).exists() for program in programs.names)
    return built and stamp.exists() and stamp.read_text() == programs.stamp


@contextmanager
def _alone() -> Iterator[None]:
    """One installation at a time; the next one waits, and then finds the result of the first."""
    K8S.mkdir(parents=True, exist_ok=True)
    with (K8S / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another installation to end", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
