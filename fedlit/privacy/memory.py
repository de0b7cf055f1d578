"""What a site has sent under protection, and what it received: one memory for each site folder, whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedlit.archives import read_archive, write_archive
from fedlit.errors import RunError
from fedlit.exchange.rule import DOWN
from fedlit.sharing import State

__all__ = ["Memory", "Received"]


class Memory:
    """Protects each answer once: whatever was masked or noised for a (federation, round, question) is sent again byte
    for byte, or not at all.

    An answer is on disk before its entry is, and its entry before it is sent. A crash in between leaves an answer that
    nobody has seen; it is made anew. A damaged file is refused: an older one would forget an answer.

    Args:
        folder: the site's own; the same for all federations that the site ever joins.
        federation: its identity, which the site has accepted.

    Attributes:
        entries: all answers of all federations, oldest first.

    Raises:
        ConfigError: the file is damaged.
        RunError: the file is gone, but answers are still there.
    """

    def __init__(self, folder: Path, federation: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.federation = folder, federation
        self._path = folder / "memory.pt"
        self.entries: list[dict[str, Any]] = []
        if self._path.exists():
            self.entries = read_archive(self._path)
        elif any(folder.glob("answer-*")):
            raise RunError(
                f"{self._path}: expected the file that says what this site has sent, found that it is gone; restore it "
                "from a copy, or ask the coordinator for a new federation"
            )

    def once(
        self,
        kind: str,
        number: int,
        question: int | None,
        make: Callable[[], State],
        over: Mapping[str, Any] | None = None,
        **noted: Any,
    ) -> dict[str, Tensor]:
        """The answer for a round, made at most once.

        Args:
            kind: ``masked`` or ``noised``.
            number: exchanges before the round.
            question: the rule's question within the round; None for the update.
            make: makes the answer.
            over: what the answer may depend on; a second request must have the same.
            **noted: written down beside it.

        Raises:
            RunError: the answer was made for something else, or is no longer there.
        """
        key = {"federation": self.federation, "kind": kind, "round": number, "question": question, "over": over}
        for entry in self.entries:
            if any(entry[part] != key[part] for part in ("federation", "kind", "round", "question")):
                continue
            path = self.folder / entry["file"]
            if entry["over"] != over or not path.exists():
                found = "a request for another sum" if path.exists() else f"that {path.name} was let go"
                raise RunError(
                    f"round {number + 1}: expected to be asked again for the same answer, which is {kind} only once, "
                    f"found {found}; nothing was sent. Two sums over different sites, or two noisy answers, would tell "
                    "more than one"
                )
            kept: dict[str, Tensor] = read_archive(path)
            return kept
        answer = dict(make())
        file = f"answer-{len(self.entries)}.pt"
        write_archive(answer, self.folder / file)
        self.entries.append({**key, "file": file, **noted})
        write_archive(self.entries, self._path)
        return answer

    def forget(self, number: int) -> None:
        """Delete answers before an exchange: the site has a checkpoint and will not go back. Their entries stay."""
        for entry in self.entries:
            if entry["federation"] == self.federation and entry["round"] < number:
                (self.folder / entry["file"]).unlink(missing_ok=True)


class Received:
    """What a site has received, exchange by exchange, on disk: an update is the difference to it, also after a restart.

    Args:
        folder: the site's own.
        federation: its identity; what another federation sent is not looked at.
        start: what the client starts from, which everybody knows: the run's seed draws it.
    """

    def __init__(self, folder: Path, federation: str, start: State) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder, self.federation = folder, federation
        self._start = {name: own.detach().cpu().clone() for name, own in start.items()}

    def _path(self, number: int) -> Path:
        return self.folder / f"received-{number}.pt"

    def _known(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("received-")) for path in self.folder.glob("received-*.pt"))

    def _read(self, number: int) -> dict[str, Tensor] | None:
        if not self._path(number).exists():
            return None
        known: dict[str, Any] = read_archive(self._path(number))
        return known["state"] if known["federation"] == self.federation else None

    def told(self, number: int) -> dict[str, Tensor]:
        """What the coordinator had sent before an exchange; nothing before the first.

        Raises:
            RunError: it is no longer known.
        """
        known = self._read(number - 1)
        if known is None and number > 0:
            raise RunError(
                f"exchange {number + 1}: expected {self._path(number - 1)}, what this site received in the exchange "
                "before, found that it is gone; go on from a later checkpoint"
            )
        return known or {}

    def before(self, number: int) -> dict[str, Tensor]:
        """What the client last received before an exchange, name by name; else what it started from."""
        return {**self._start, **self.told(number)}

    def put(self, number: int, received: State) -> None:
        """Note what came of an exchange, before the client makes anything of it."""
        own = {name: value.detach().cpu() for name, value in received.items() if not name.startswith(DOWN)}
        earlier = (self._read(known) for known in reversed(self._known()) if known < number)
        before = next((known for known in earlier if known is not None), {})  # a site that was away has missed some
        write_archive({"federation": self.federation, "state": {**before, **own}}, self._path(number))

    def forget(self, number: int) -> None:
        """Delete what came before an exchange: the site will not go back."""
        for known in self._known():
            if known < number - 1:
                self._path(known).unlink()
