"""What a site has sent under protection, and what it received: one memory for each site folder."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.rule import DOWN
from fedlit.exchange.server import BEGIN
from fedlit.sharing import State
from fedlit.store import Store

RECEIVED = "received.db"
_MEND = "restore it from a copy, or ask the coordinator for a new federation"


class Memory:
    """Protects each answer once: what was masked or noised for a (federation, round, question) is sent again byte for
    byte, or not at all.

    An answer and its entry are written in one transaction before the answer is sent. A site that is killed before this
    makes the answer anew, because nobody has seen it. A damaged file is refused: an older copy would lack an answer.

    Args:
        folder: the site's own folder; the same for all federations that the site ever joins.
        federation: the identity of the federation, which the site has accepted.

    Attributes:
        entries: all answers of all federations, oldest first.

    Raises:
        ConfigError: the file is damaged.
        RunError: the file is gone, although the record of what was received, which is made after it, is there.
    """

    def __init__(self, folder: Path, federation: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.federation = federation
        path = folder / "memory.db"
        # memory.pt is of earlier versions, whose noise must not be forgotten
        if not path.exists() and any((folder / other).exists() for other in ("memory.pt", RECEIVED)):
            raise RunError(
                f"{path}: expected the file that says what this site has sent, found that it is gone; {_MEND}"
            )
        self._store = Store(path, _MEND)
        self.entries: list[dict[str, Any]] = self._store.get("entries") or []

    def once(
        self,
        kind: str,
        number: int,
        question: int | None,
        make: Callable[[], State],
        over: Mapping[str, Any] | None = None,
        **noted: Any,
    ) -> dict[str, Tensor]:
        """Return the answer for a round, which is made at most once.

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
            answer: dict[str, Tensor] | None = self._store.get(entry["answer"])
            if entry["over"] != over or answer is None:
                found = "that it was deleted" if answer is None else "a request for another sum"
                raise RunError(
                    f"round {number + 1}: expected to be asked again for the same answer, which is {kind} only once, "
                    f"found {found}; nothing was sent. Two sums over different sites, or two noisy answers, would tell "
                    "more than one"
                )
            return answer
        answer, name = dict(make()), f"answer/{len(self.entries)}"
        entries = [*self.entries, {**key, "answer": name, **noted}]
        self._store.put({("entries", 0): entries, (name, 0): answer})
        self.entries = entries
        return answer

    def forget(self, number: int) -> None:
        """Delete the answers before an exchange; the site has a checkpoint and will not go back. Entries stay."""
        old = [own for own in self.entries if own["federation"] == self.federation and own["round"] < number]
        self._store.put({}, drop=[(entry["answer"], 0, 1) for entry in old])


class Received:
    """What a site received, exchange by exchange, on disk. An update is the difference from it, also after a restart.

    Args:
        folder: the site's own folder.
        federation: the identity of the federation; what another federation sent is ignored.
        start: what the client starts from, which everybody knows, because the run's seed draws it.
    """

    def __init__(self, folder: Path, federation: str, start: State) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.federation = federation
        self._store = Store(folder / RECEIVED, "go on from a backup of this folder, or ask for a new federation")
        self._start = {name: own.detach().cpu().clone() for name, own in start.items()}

    def told(self, number: int) -> dict[str, Tensor]:
        """Return what the coordinator sent before an exchange; empty before the first.

        Raises:
            RunError: it is no longer known.
        """
        known: dict[str, Tensor] | None = self._store.get(self.federation, number - 1)
        if known is None and number > 0:
            raise RunError(
                f"exchange {number + 1}: expected {self._store.path} to have what this site received in the "
                "exchange before, found that it is gone; go on from a later checkpoint"
            )
        return known or {}

    def before(self, number: int) -> dict[str, Tensor]:
        """Return what the client last received before an exchange, name by name, or else what it started from."""
        return {**self._start, **self.told(number)}

    def put(self, number: int, received: State) -> None:
        """Record the result of an exchange, before the client uses it."""
        own = {name: value.detach().cpu() for name, value in received.items() if not name.startswith(DOWN)}
        earlier = [known for known in self._store.numbers(self.federation) if known < number]
        before = self._store.get(self.federation, earlier[-1]) if earlier else {}  # a site may have missed some
        self._store.put({(self.federation, number): {**before, **own}})

    def forget(self, number: int) -> None:
        """Delete what came before an exchange, because the site will not go back."""
        self._store.put({}, drop=[(self.federation, BEGIN, number - 1)])
