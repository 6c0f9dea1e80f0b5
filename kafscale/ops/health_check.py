"""`python -m kafscale.ops.health_check`: whether the broker of this container is alive, for a HEALTHCHECK."""

import http.client
import os
import sys

from kafscale.errors import SettingError
from kafscale.settings.broker import load_settings
from kafscale.settings.kinds import Address

TIMEOUT_SEC = 3.0
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def problem(address: Address) -> str | None:
    """The problem that `/healthz` at that address reports; None when the broker is alive."""
    host = _LOOPBACK.get(address.host, address.host)
    connection = http.client.HTTPConnection(host, address.port, timeout=TIMEOUT_SEC)
    try:
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        answer = response.read().decode(errors="replace").strip()
        return None if response.status == http.HTTPStatus.OK else answer
    except (OSError, http.client.HTTPException) as error:
        return f"{address} does not answer: {error or type(error).__name__}"
    finally:
        connection.close()


def main() -> int:
    """The exit status: 0 alive, 1 not. Prints why not."""
    try:
        found = problem(load_settings(os.environ).metrics_addr)
    except SettingError as error:
        found = str(error)
    if found is not None:
        print(found, file=sys.stderr)
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
