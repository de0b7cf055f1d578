"""Commands in processes that have imported everything already: each is forked from one that did nothing but import.

``python tests/warm.py serve SOCKET`` is that process. ``... run SOCKET fedlit ARGUMENTS`` is a command: it hands its
arguments, folder, environment and files to the server, whose child becomes the command, and ends as that does.
``... run SOCKET python -c TEXT`` does the same for Python.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any

LONGEST = 1200
"""Seconds after which a command hangs, however slow the machine, and is killed."""


def serve(path: str) -> None:
    """Fork a child for each request, one after the other."""
    import fedlit.__main__
    import fedlit.cli.runs
    import fedlit.cli.study
    import fedlit.nn
    import fedlit.study.search  # noqa: F401

    # A thread would not be in the child, but what it holds would be held there for ever.
    threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1
    assert threads == 1, f"expected imports to start no thread, found {threads}"
    gc.freeze()  # what was imported stays shared: collecting it at a child's end would copy it
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        while server in select.select([server, sys.stdin], [], [])[0]:  # standard input ends with who started this
            connection, _ = server.accept()
            with connection:
                text, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
                child = os.fork()
                if child == 0:
                    server.close()
                    become(json.loads(text), files)
                    return
                for file in files:
                    os.close(file)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                connection.sendall(str(status).encode())


def become(request: dict[str, Any], files: list[int]) -> None:
    """Be the command: its files, folder, environment, arguments; ends by leaving, as a command does."""
    signal.alarm(LONGEST)
    for own, file in enumerate(files):
        os.dup2(file, own)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["folder"])
    sys.argv = request["argv"]
    program, *rest = sys.argv
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    # where Python looks first: beside the command, and for `python -c` in the folder
    sys.path[0] = os.path.dirname(sys.executable) if program == "fedlit" else ""
    if program == "fedlit":
        from fedlit.__main__ import main as fedlit

        sys.exit(fedlit())
    exec(compile(rest[1], "<block>", "exec"), vars(main))


def run(path: str, argv: list[str]) -> int:
    """Exit status of a command."""
    request = {"argv": argv, "folder": os.getcwd(), "environ": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        return int(connection.recv(16))


if __name__ == "__main__":
    command, path, *argv = sys.argv[1:]
    sys.exit(serve(path) if command == "serve" else run(path, argv) & 0xFF)
