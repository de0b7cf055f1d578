"""A browser without a window, driven by Chromium's own protocol: open a page, type, and look at
what is there."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-port=0",
    "--window-size=1280,900",
)
LISTENING = "DevTools listening on "


class Browser:
    """One tab.

    Args:
        socket: the connection to the browser.
    """

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.calls = 0
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and wait for its result."""
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        answer: dict[str, Any] = {}
        while answer.get("id") != self.calls:  # others are events
            answer = json.loads(self.socket.recv(timeout=120))
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, page: Path) -> None:
        """Open a page of this machine, as a click on the file does."""
        self.call("Page.navigate", url=page.as_uri())
        self.wait(
            f"location.href === {json.dumps(page.as_uri())} && document.readyState === 'complete'"
        )

    def value(self, script: str) -> Any:
        """Evaluate an expression, which may be a promise."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition: str, seconds: int = 60) -> None:
        """Wait until an expression is true."""
        script = f"""new Promise(resolve => {{
            const end = Date.now() + {1000 * seconds}
            const look = () => {{
                const holds = Boolean({condition})
                if (holds || Date.now() > end) resolve(holds)
                else setTimeout(look, 50)
            }}
            look()
        }})"""
        assert self.value(script), f"after {seconds} s still false: {condition}"

    def type(self, text: str) -> None:
        """Type one character into the element that has the focus."""
        self.call("Input.insertText", text=text)


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser whose profile lies in a folder; skip the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"needs a browser: looked for {', '.join(NAMES)}")
    client = pytest.importorskip(
        "websockets.sync.client", reason="the browser is driven over a WebSocket"
    )
    command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = next(line for line in process.stderr if line.startswith(LISTENING))
            with client.connect(address.removeprefix(LISTENING).strip(), max_size=None) as socket:
                yield Browser(socket)
        finally:
            process.terminate()
