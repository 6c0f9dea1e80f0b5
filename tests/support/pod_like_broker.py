"""A broker with the settings and Secrets of a KafscaleCluster's pods, as a process of the test's."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.broker import HOST, KafscaleBroker
from tests.support.ports import free_port
from tests.support.process import clean_environment
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY

FOLDER = "/etc/kafscale/"


class PodLikeBroker(KafscaleBroker):
    """Each port of the pod is another one here, which stays the same over restarts."""

    def __init__(self, folder: Path, broker_id: int = 0) -> None:
        super().__init__(folder, f"broker-{broker_id}")
        self._broker_id = broker_id
        self._pod: dict[str, str] = {}
        self._ports: dict[int, int] = {}

    def lay(self, settings: Mapping[str, str], files: Mapping[str, bytes]) -> None:
        """The next start's variables, and files by their paths in `FOLDER`."""
        self._pod = dict(settings)
        for path, content in files.items():
            where = self.folder / path
            where.parent.mkdir(exist_ok=True)
            where.write_bytes(content)

    def address(self, port: int) -> str:
        """Where clients reach that port of the pod."""
        return f"{HOST}:{self._ports.setdefault(port, free_port())}"

    def environment(self) -> dict[str, str]:
        listeners = [each.split("://:") for each in self._pod["KAFSCALE_LISTENERS"].split(",")]
        where = ",".join(f"{name}://{self.address(int(port))}" for name, port in listeners)
        inside = {name: value.replace(FOLDER, f"{self.folder}/") for name, value in self._pod.items()}
        ours = {
            "KAFSCALE_BROKER_ID": str(self._broker_id),
            "KAFSCALE_LISTENERS": where,
            "KAFSCALE_ADVERTISED_LISTENERS": where,
            "KAFSCALE_METRICS_ADDR": f"{HOST}:{self.metrics_port}",
            "KAFSCALE_S3_ACCESS_KEY": ACCESS_KEY,
            "KAFSCALE_S3_SECRET_KEY": SECRET_KEY,
        }
        return clean_environment() | inside | ours
