"""A broker as it runs in a pod: `kafscale pod`, with the variables and the service account's files of one."""

import shutil
import sys
from pathlib import Path

from tests.support.broker import KafscaleBroker
from tests.support.kube_access import Access


class PodBroker(KafscaleBroker):
    """`variables` are the pod's, such as NODE_NAME. Before `give_access` it has no token."""

    def __init__(self, folder: Path, server: str, variables: dict[str, str], **settings: object) -> None:
        super().__init__(folder, "pod", **settings)
        self.account_folder = folder / "serviceaccount"
        self.account_folder.mkdir()
        self.temporary_folder = folder / "tmp"
        self.temporary_folder.mkdir()
        host, _, port = server.removeprefix("https://").partition(":")
        self._variables = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "TMPDIR": str(self.temporary_folder),
            **variables,
        }

    def give_access(self, access: Access) -> None:
        """Lay out its token as a kubelet does."""
        assert access.token is not None
        (self.account_folder / "token").write_text(access.token)
        shutil.copyfile(access.ca, self.account_folder / "ca.crt")

    def environment(self) -> dict[str, str]:
        return super().environment() | self._variables

    def command(self) -> list[str]:
        """The command of the container."""
        kafscale = str(Path(sys.executable).parent / "kafscale")
        return [kafscale, "pod", "--service-account", str(self.account_folder)]

    def launch_only(self) -> None:
        self.launch(self.command(), self.environment())

    def answers(self) -> bool:
        """True if health is served."""
        assert self.exit_code is None, f"ended with exit code {self.exit_code}\n{self.log_tail()}"
        try:
            return self.http_get("/healthz")[0] == 200
        except OSError:
            return False
