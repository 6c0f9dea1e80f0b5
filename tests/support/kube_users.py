"""KafscaleUsers and Secrets in the Kubernetes API in memory."""

import base64
from typing import Any

from kafscale.operator.kube.kinds import SECRET, USER
from tests.support.kube_memory import NAMESPACE, KubeMemory, Manifest


def encoded(texts: dict[str, str | bytes]) -> dict[str, str]:
    """A Secret's data."""
    found = {key: text.encode() if isinstance(text, str) else text for key, text in texts.items()}
    return {key: base64.b64encode(content).decode() for key, content in found.items()}


class KubeUsers(KubeMemory):
    """The part that `UserApi` needs."""

    def add_user(self, name: str, *, cluster: str = "c", **parts: Any) -> None:
        self.add(USER, name, {"clusterRef": {"name": cluster}, **parts})

    def user(self, name: str) -> Manifest:
        return self._objects[USER.plural, name]

    def user_status(self, name: str) -> Manifest:
        found: Manifest = self.user(name).get("status", {})
        return found

    def user_condition(self, name: str) -> tuple[str, str, str]:
        """Phase, reason and message."""
        status = self.user_status(name)
        (found,) = status["conditions"]
        return status["phase"], found["reason"], found["message"]

    def change_user(self, name: str, **parts: Any) -> None:
        """Change the specification; None removes a part."""
        found = self.user(name)
        spec = {**found["spec"], **parts}
        found["spec"] = {key: value for key, value in spec.items() if value is not None}
        found["metadata"]["generation"] += 1
        self._touch(found)

    def annotate_user(self, name: str, **annotations: str) -> None:
        found = self.user(name)
        found["metadata"].setdefault("annotations", {}).update(annotations)
        self._touch(found)

    def put_secret(self, name: str, **texts: str | bytes) -> None:
        """One that somebody made."""
        self._objects[SECRET.plural, name] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"secret-{name}"},
            "data": encoded(texts),
        }

    def secret(self, name: str) -> dict[str, bytes] | None:
        """Its data, None if there is none."""
        found = self._objects.get((SECRET.plural, name))
        if found is None:
            return None
        return {key: base64.b64decode(text) for key, text in found["data"].items()}

    def password(self, name: str) -> str:
        """The password in the user's Secret."""
        found = self.secret(name)
        assert found is not None
        return found["password"].decode()
