"""The record of what leaves a site."""

import hashlib
import json
import time
from pathlib import Path


class Traffic:
    """Writes a line of JSON for each message that leaves the site: key, bytes, their SHA-256, and
    the names in it.

    Args:
        path: the file, to which lines are added.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def note(self, key: str, content: bytes, names: object) -> None:
        """Record a message that is about to leave."""
        line = {
            "at": round(time.time(), 3),
            "key": key,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "names": names}) + "\n")
