"""The Dockerfile, carried out: what is in the image, and that it runs as a pod lets it run.

No engine is needed: `tests.support.image_build` says how, and what is this machine's and not the base image's.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from kafscale.commands.cli import main
from tests.support.broker import KafscaleBroker
from tests.support.dockerfile import Stage, parse
from tests.support.image_build import Image, why_not

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILE = PROJECT / "Dockerfile"
USER = 10001
VOLUME = "/var/lib/kafscale"
# What is laid over the base image, which has some 125 MB itself.
MOST_BYTES = 110_000_000
# Of Debian's smallest image: glibc, and what its package manager needs.
OF_THE_BASE = re.compile(r"(libc|libm|libdl|librt|libutil|libpthread|libgcc_s|libstdc\+\+)\.so\.\d|ld-linux")

NOT_IN_IT = ("llvmlite", "numba", "numpy", "pyarrow", "pyiceberg", "pytest")
"""Of the extras `arrow` and `iceberg`, and of the plugin for tests."""

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]


@pytest.fixture(scope="module")
def image(images: dict[str, Image]) -> Image:
    return images[""]


@pytest.fixture(scope="module")
def stage() -> Stage:
    return parse(DOCKERFILE.read_text())[-1]


class ImageBroker(KafscaleBroker):
    """The container: the image's command, its user, a root file system that is read-only, a volume."""

    def __init__(self, folder: Path, image: Image, stage: Stage, **settings: object) -> None:
        super().__init__(folder, "container", **settings)
        self._image, self._stage = image, stage
        self.volume = folder / "volume"
        self.volume.mkdir()
        os.chown(self.volume, USER, USER)

    def environment(self) -> dict[str, str]:
        """The image's, and what a pod's specification says."""
        ours = {
            "KAFSCALE_BROKER_ADDR": f":{self.port}",
            "KAFSCALE_BROKER_HOST": "127.0.0.1",
            "KAFSCALE_ALLOW_PLAINTEXT": "true",
            "KAFSCALE_METRICS_ADDR": f":{self.metrics_port}",
            **{f"KAFSCALE_{name.upper()}": str(value) for name, value in self.settings.items()},
        }
        return self._image.environment | ours

    def launch_only(self) -> None:
        command = [*self._stage.last("ENTRYPOINT").words(), *self._stage.last("CMD").words()]
        mounts = {VOLUME: self.volume}
        self.launch(self._image.command(command, writable=False, mounts=mounts), self.environment())


@contextlib.contextmanager
def container(folder: Path, image: Image, stage: Stage, **settings: object) -> Iterator[ImageBroker]:
    broker = ImageBroker(folder, image, stage, **settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def lines(image: Image, *command: str) -> list[str]:
    ended = image.run(*command)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_every_command_answers(image: Image) -> None:
    assert lines(image, "kafscale", "--version") == [f"kafscale {version('kafscale')}"]
    assert {"serve", "pod", "operator", "recover"} <= set(main.commands)
    for name in main.commands:
        assert lines(image, "kafscale", name, "--help")[0].startswith(f"Usage: kafscale {name}")


def test_every_module_of_it_can_be_imported(image: Image) -> None:
    """The operator's as well: what one of them needs is in the image, but for extras that have no place in a pod."""
    program = f"""
import importlib, kafscale, pkgutil
for one in pkgutil.walk_packages(kafscale.__path__, "kafscale."):
    if not one.name.endswith("__main__"):
        try:
            print(importlib.import_module(one.name).__name__)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] not in {NOT_IN_IT}:
                raise
"""
    found = lines(image, "python", "-c", program)
    assert {"kafscale.broker.app", "kafscale.operator.pods.command", "kafscale.ops.health_check"} <= set(
        found
    )


def test_it_is_nobody_who_owns_anything(image: Image, stage: Stage) -> None:
    assert image.user == f"{USER}:{USER}", "Kubernetes can tell only a number from root"
    assert lines(image, "id", "-un") == ["kafscale"]
    owned = [path for path in image.files() if path.lstat().st_uid == USER]
    assert owned == []
    loose = [
        path
        for path in image.files()
        if not path.is_symlink() and path.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]
    assert loose == []
    assert image.where(VOLUME).stat().st_uid == USER
    assert image.volumes == [VOLUME]


def test_broker_writes_only_to_its_volume_and_tmp(image: Image, stage: Stage, tmp_path: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in image.files()}
    with container(tmp_path, image, stage) as broker:
        check = stage.last("HEALTHCHECK")
        assert check.text.startswith("CMD ")
        command = ["env", f"KAFSCALE_METRICS_ADDR=:{broker.metrics_port}"]
        health = [*command, "python", "-m", "kafscale.ops.health_check"]
        assert image.run(*health).returncode == 0
        status = Path(f"/proc/{broker.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == [str(USER)] * 4
        assert (int(fields["CapEff"], 16), fields["NoNewPrivs"]) == (0, "1")
        assert "Read-only file system" not in broker.log_path.read_text()
        assert broker.stop() < 15
        assert image.run(*health).returncode == 1
    assert {path: path.lstat().st_mtime_ns for path in image.files()} == before
    assert sorted(path.name for path in broker.volume.iterdir()) != []


@pytest.mark.parametrize("codec", ["zstd", "lz4", "snappy"])
async def test_records_go_through_it(image: Image, stage: Stage, tmp_path: Path, codec: str) -> None:
    """Compiled parts still work without their symbols."""
    with container(tmp_path, image, stage, compression_codec=codec, flush_interval_ms=0) as broker:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(10):
                await producer.send_and_wait("topic", b"%d" % number * 100)
        consumer = AIOKafkaConsumer("topic", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        async with consumer:
            values = [(await consumer.getone()).value for _ in range(10)]
        assert values == [b"%d" % number * 100 for number in range(10)]


def test_buckets_and_service_account_roles_are_described(image: Image) -> None:
    """Only these of Amazon's services are left. A pod's role is taken by way of the second."""
    program = (
        "import boto3\n"
        "keys = dict(aws_access_key_id='a', aws_secret_access_key='b', region_name='eu-central-1')\n"
        "s3, sts = (boto3.client(name, **keys) for name in ('s3', 'sts'))\n"
        "print(s3.put_bucket_lifecycle_configuration.__name__, sts.assume_role_with_web_identity.__name__)"
    )
    assert lines(image, "python", "-c", program) == [
        "put_bucket_lifecycle_configuration assume_role_with_web_identity"
    ]


def test_nothing_is_left_to_be_compiled(image: Image) -> None:
    """A start would do it again each time, and could not keep it."""
    packages = next(image.where("/opt/kafscale/lib").glob("python3.*/site-packages"))
    sources = [path for path in packages.rglob("*.py") if _is_module(path)]
    compiled = {path: list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")) for path in sources}
    assert len(sources) > 1000
    assert [path for path, found in compiled.items() if not found] == []
    # Checked against nothing: what a copy does to the times of files does not matter (PEP 552).
    flags = {int.from_bytes(found[0].read_bytes()[4:8], "little") for found in compiled.values()}
    assert flags == {0b01}


def _is_module(path: Path) -> bool:
    try:
        compile(path.read_bytes(), path, "exec")
    except SyntaxError:
        return False  # a template, or for another Python
    return True


def test_compiled_parts_need_only_libraries_of_the_base(images: dict[str, Image], image: Image) -> None:
    libraries = sorted(path for path in image.where("/opt/kafscale").rglob("*.so*") if path.is_file())
    assert len(libraries) > 20
    own = {path.name for path in libraries}
    inside = [f"/{path.relative_to(image.laid)}" for path in libraries]
    told = images["build"].run("readelf", "--dynamic", *inside)
    assert told.returncode == 0, told.stderr
    needed = set(re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", told.stdout))
    assert "libc.so.6" in needed
    assert [name for name in needed - own if not OF_THE_BASE.match(name)] == []


def test_it_is_small_and_has_no_tools_to_build_with(image: Image) -> None:
    laid = sum(path.lstat().st_size for path in image.files())
    print(f"{laid / 1e6:.1f} MB are laid over the base image")
    assert laid < MOST_BYTES
    assert not image.where("/src").exists()
    packages = next(image.where("/opt/kafscale/lib").glob("python3.*/site-packages"))
    names = {path.name for path in packages.iterdir()}
    assert "kafscale" in names
    assert names.isdisjoint({"pip", "setuptools", "tests", "pytest", "pyspark", "spark_jobs"})


def test_a_container_begins_with_the_broker(stage: Stage) -> None:
    assert stage.last("ENTRYPOINT").words() == ["kafscale"]
    assert stage.last("CMD").words() == ["serve"]
    assert set(stage.last("EXPOSE").words()) == {"9092", "9093"}
