"""Install what tests need beyond Python, all or some of it: `python -m tests.compat.tools [--required] [PART...]`.

The parts are Kafka's Java tools (`kafka`), other clients, stores, and what the chart's and Spark's tests run.
"""

import argparse
import fcntl
import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spark_jobs.jar_set import OLDEST_JAVA, JarSet
from tests.support.etcd_install import install_etcd
from tests.support.installing import TOOLS, ensure_command, install_jars, run_command
from tests.support.installing import CannotInstallError as CannotInstallError
from tests.support.k8s_install import install_helm
from tests.support.promtool_install import install_promtool
from tests.support.s3_install import install_s3_server
from tests.support.spark_install import install_spark_libs

ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("pom.xml")
KAFKA_LIBS = TOOLS / "kafka-libs"
KAFKA_JARS = JarSet(POM, KAFKA_LIBS)
COMPACTION_LIBS = TOOLS / "kafka-compaction-libs"
COMPACTION_JARS = JarSet(Path(__file__).with_name("compaction") / "pom.xml", COMPACTION_LIBS)
SHARE_GROUPS = Path(__file__).with_name("share_groups")
KAFKA_SHARE_LIBS = TOOLS / "kafka-share-libs"
KAFKA_SHARE_JARS = JarSet(SHARE_GROUPS / "pom.xml", KAFKA_SHARE_LIBS)
FRANZ_SOURCE = Path(__file__).with_name("go")
FRANZ = TOOLS / "franz"
FRANZ_SHARE_SOURCE = SHARE_GROUPS / "go"
FRANZ_SHARE = TOOLS / "franz-share"
KAFKA_JS_SOURCE = Path(__file__).with_name("node")
KAFKA_JS = TOOLS / "kafkajs"


def java_missing() -> str | None:
    """Why Java tests cannot run here, or None."""
    if shutil.which("java") is None:
        return f"no java on the PATH (a JDK of version {OLDEST_JAVA} or newer is needed)"
    if not KAFKA_JARS.paths():
        return "Kafka's Java artifacts are not in .tools/kafka-libs (run `python -m tests.compat.tools`)"
    return None


def compaction_jars_missing() -> str | None:
    """Why Streams, Connect and Kafka's tester of compaction cannot run here, or None."""
    if java_missing() is None and not COMPACTION_JARS.paths():
        return "Kafka Streams is not in .tools/kafka-compaction-libs (run `python -m tests.compat.tools`)"
    return java_missing()


def kcat_missing() -> str | None:
    """Why kcat tests cannot run here, or None."""
    return None if shutil.which("kcat") else "no kcat on the PATH (Debian package kcat)"


def franz_missing() -> str | None:
    """Why franz-go tests cannot run here, or None."""
    return _not_built(FRANZ_SOURCE, FRANZ)


def franz_share_missing() -> str | None:
    """Why tests of franz-go in share groups cannot run here, or None."""
    return _not_built(FRANZ_SHARE_SOURCE, FRANZ_SHARE)


def kafka_share_missing() -> str | None:
    """Why Java's share consumers, and the Kafka that serves them, cannot run here, or None."""
    if java_missing() is None and not KAFKA_SHARE_JARS.paths():
        return "Kafka 4.2's Java artifacts are not in .tools/kafka-share-libs (run `python -m tests.compat.tools`)"
    return java_missing()


def kafka_js_missing() -> str | None:
    """Why KafkaJS tests cannot run here, or None."""
    if shutil.which("node") is None:
        return "no node on the PATH (Debian package nodejs)"
    if not (KAFKA_JS / "node_modules" / "kafkajs").is_dir():
        return "KafkaJS is not in .tools/kafkajs (needs npm; run `python -m tests.compat.tools`)"
    return None


def install_kafka_libs() -> str:
    """Kafka's tools, clients and broker into `.tools/kafka-libs`. Returns what was done."""
    return install_jars(KAFKA_JARS)


def install_compaction_libs() -> str:
    """Kafka Streams and what else tests of compaction run into `.tools/kafka-compaction-libs`."""
    return install_jars(COMPACTION_JARS)


def install_kafka_share_libs() -> str:
    """The Kafka of the tests of share groups into `.tools/kafka-share-libs`. Returns what was done."""
    return install_jars(KAFKA_SHARE_JARS)


def install_kcat() -> str:
    """kcat from the machine's packages. Returns what was done."""
    return ensure_command("kcat", package="kcat")


def install_franz() -> str:
    """The franz-go client of tests/compat/go, built with Go into `.tools/franz`. Returns what was done."""
    return _build(FRANZ_SOURCE, FRANZ)


def install_franz_share() -> str:
    """The franz-go client of tests/compat/share_groups/go, built into `.tools/franz-share`."""
    return _build(FRANZ_SHARE_SOURCE, FRANZ_SHARE)


def install_kafka_js() -> str:
    """KafkaJS of tests/compat/node, by npm into `.tools/kafkajs`, where there are both. Returns what was done."""
    if kafka_js_missing() is None:
        return "there already"
    if shutil.which("npm") is None:
        raise CannotInstallError("no npm on the PATH; install Node.js with it by hand")
    KAFKA_JS.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(KAFKA_JS_SOURCE / name, KAFKA_JS / name)
    run_command("npm", "ci", "--no-audit", "--no-fund", folder=KAFKA_JS)
    return "installed with npm"


PARTS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "kafka": ("Kafka's Java artifacts", install_kafka_libs),
    "kafka-compaction": ("Kafka Streams", install_compaction_libs),
    "kafka-share": ("Kafka 4.2 for share groups", install_kafka_share_libs),
    "kcat": ("kcat", install_kcat),
    "franz": ("franz-go", install_franz),
    "franz-share": ("franz-go for share groups", install_franz_share),
    "kafkajs": ("KafkaJS", install_kafka_js),
    "versitygw": ("versitygw", install_s3_server),
    "etcd": ("etcd", install_etcd),
    "promtool": ("promtool", install_promtool),
    "spark": ("Spark's jars", install_spark_libs),
    "helm": ("helm", install_helm),
}
"""The name of each part in the output, and its installer."""
QUEUES = (
    ("kafka", "kafka-compaction", "kafka-share", "spark"),
    ("helm", "versitygw", "franz", "franz-share"),
    ("etcd", "promtool", "kcat"),
    ("kafkajs",),
)
"""Parts installed one after the other: by Maven, by Go, from Debian, by npm. The queues go on side by side."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the parts that are named, or all.

    The exit code is 0 also where something cannot be had, because its tests say so and are skipped; with
    `--required` it is 1.
    """
    parser = argparse.ArgumentParser(prog="tools", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"one of {', '.join(PARTS)}; all without one"
    )
    parser.add_argument("--required", action="store_true", help="fail where a part cannot be had")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: the parts are {', '.join(PARTS)}")
    TOOLS.mkdir(exist_ok=True)
    wanted = options.parts or PARTS
    queues = [[part for part in queue if part in wanted] for queue in QUEUES]
    with (TOOLS / ".lock").open("w") as lock, ThreadPoolExecutor(len(queues)) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_complete = all(list(pool.map(_install_all, queues)))
    return 1 if options.required and not is_complete else 0


def _install_all(parts: Sequence[str]) -> bool:
    """Install one after the other; returns whether all of them are there now."""
    is_complete = True
    for part in parts:
        name, install = PARTS[part]
        try:
            print(f"{name}: {install()}", flush=True)
        except CannotInstallError as error:
            print(f"{name}: not installed: {error}", flush=True)
            is_complete = False
    return is_complete


def _not_built(source: Path, program: Path) -> str | None:
    if _is_built(source, program):
        return None
    return f"the franz-go client is not built in .tools/{program.name} (needs Go; run `python -m tests.compat.tools`)"


def _build(source: Path, program: Path) -> str:
    if _is_built(source, program):
        return "there already"
    ensure_command("go", package="golang-go")
    staging = program.with_name(f"{program.name}.new")
    # without the commit in the binary: a checkout of another owner would refuse to tell it
    run_command("go", "build", "-C", str(source), "-buildvcs=false", "-o", str(staging), ".")
    staging.rename(program)
    _stamp(program).write_text(_digest(source))
    return "built with Go"


def _stamp(program: Path) -> Path:
    return program.with_name(f"{program.name}.sha256")


def _is_built(source: Path, program: Path) -> bool:
    return program.exists() and _stamp(program).exists() and _stamp(program).read_text() == _digest(source)


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
