"""A process that has loaded the broker and waits; a fork of it becomes `kafscale serve`. The other end: `forked`.

Loading the broker's modules is most of what a broker's start costs, and a run of the tests starts hundreds.
Usage: `python -m tests.support.broker_template FD`, with a socket that carries one JSON object per line.
`{"start": {"program", "environment", "folder", "log"}}` is answered with `{"pid"}`, `{"reap": pid}` with
`{"status", "cpu"}`: the exit status as `os.wait4` gives it, and processor seconds. The end of the socket ends it.
"""

import json
import os
import socket
import sys
from importlib import import_module

from kafscale.commands.running import no_garbage

# What `kafscale serve` imports, and the stores that it imports by its settings.
MODULES = (
    "kafscale.commands.cli",
    "kafscale.broker.app",
    "kafscale.metadata.etcd.config",
    "kafscale.metadata.etcd.store",
    "kafscale.metadata.sqlite.store",
    "kafscale.objects.bucket.config",
    "kafscale.objects.local.store",
)


def serve_requests(connection: socket.socket) -> None:
    """Answer requests until the socket ends. Returns in each fork too, which is a process of its own by then."""
    with connection, connection.makefile("r") as requests:
        for line in requests:
            request = json.loads(line)
            if "reap" in request:
                _, status, usage = os.wait4(request["reap"], 0)
                answer = {"status": status, "cpu": usage.ru_utime + usage.ru_stime}
            else:
                pid = os.fork()
                if pid == 0:
                    _become(**request["start"])
                    break
                answer = {"pid": pid}
            connection.sendall(json.dumps(answer).encode() + b"\n")
        else:
            sys.exit()


def _become(*, program: str, environment: dict[str, str], folder: str, log: str) -> None:
    """The environment of a new process of this command. Its standard input is empty already."""
    os.setsid()
    os.chdir(folder)
    log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (1, 2):
        os.dup2(log_file, stream)
    os.close(log_file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = [program, "serve"]


if __name__ == "__main__":
    with no_garbage():
        for name in MODULES:
            import_module(name)
    serve_requests(socket.socket(fileno=int(sys.argv[1])))
    from kafscale.commands.cli import main

    main()
