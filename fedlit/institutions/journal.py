"""What a coordinator must know after it was killed: what sites said before training, and what it replied to each."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlit.checksums import read, write
from fedlit.errors import ConfigError
from fedlit.exchange.aggregation import BEGIN

__all__ = ["Journal"]

FORMAT = 2
_log = logging.getLogger(__name__)


class Journal:
    """Replies on disk, by key and site. They are written before they are sent, so that a site that begins again from
    a checkpoint gets the same ones, whoever was killed.

    The journal is written twice: first ``journal.copy.pt``, then ``journal.pt``. Where one file is damaged, the other
    one has the same content. An older journal would not do: the coordinator would open a round again that sites have
    left, and a rule such as FedAdam would have lost what it remembers of that round.

    Args:
        folder: where it lies.
        sites: of the federation, sorted.
        start: the first round: :data:`~fedlit.exchange.aggregation.BEGIN` where the rule has something to say before
            training, else 0.

    Attributes:
        name: drawn when it was begun; masks are bound to it.
        number: the round that is open.
        memory: what the rule and the guard remember before it.
        told: topic → site → facts.
        took: round → sites that took part, of those that are closed.
        done: sites where training is over.

    Raises:
        ConfigError: a journal of other sites or of a later version, or one of which both files are damaged.
    """

    def __init__(self, folder: Path, sites: Sequence[str], start: int) -> None:
        self.folder, self.sites = folder, list(sites)
        self.number, self.memory = start, dict[str, Any]()
        self.told: dict[str, dict[str, Any]] = {}
        self.took: dict[int, list[str]] = {}
        self.name = secrets.token_hex(16)
        self.done: list[str] = []
        self._attempt: dict[str, Any] = {}
        self._saved = dict.fromkeys(self.sites, BEGIN)
        self._head, self._copy = folder / "journal.pt", folder / "journal.copy.pt"
        if self._head.is_file() or self._copy.is_file():
            self._load()

    def _load(self) -> None:
        try:
            known = read(self._head, "its copy is used")
        except (ConfigError, FileNotFoundError) as error:
            begin = f"put both back from a backup, or move the folder {self.folder} away and let all sites begin anew"
            try:
                known = read(self._copy, begin)
            except FileNotFoundError:
                raise ConfigError(f"{error}, but {self._copy.name} is not there; {begin}") from error
            _log.warning("%s", error)
        if known["format"] != FORMAT or known["sites"] != self.sites:
            raise ConfigError(
                f"{self._head}: expected a federation of {', '.join(self.sites)}, found one of "
                f"{', '.join(known['sites'])} (format {known['format']}); take the same sites, or move the folder "
                f"{self.folder} away to begin anew"
            )
        for key in ("name", "number", "memory", "told", "took", "done"):
            setattr(self, key, known[key])
        self._attempt = known["attempt"]

    def _write(self) -> None:
        own = {key: getattr(self, key) for key in ("name", "sites", "number", "memory", "told", "took", "done")}
        for path in (self._copy, self._head):
            write({"format": FORMAT, "attempt": self._attempt, **own}, path)

    @property
    def begun(self) -> bool:
        """Whether a coordinator was here before."""
        return bool(self.told)

    def tell(self, topic: str, said: Mapping[str, Any]) -> None:
        """Keep what all sites said of a topic."""
        self.told[topic] = dict(said)
        self._write()

    def ended(self, site: str) -> None:
        """Keep that training is over at a site."""
        if site not in self.done:
            self.done.append(site)
            self._write()

    def attempts(self, attempt: int, sites: Sequence[str]) -> None:
        """Keep that a masked sum of the open round is begun: whoever is started again has to end it."""
        self._attempt = {"number": self.number, "attempt": attempt, "sites": list(sites)}
        self._write()

    def attempt_of(self, number: int, sites: Sequence[str]) -> tuple[int, list[str]]:
        """The attempt at a round's masked sum that was begun, and its sites; the first, of these sites, if none was."""
        known = self._attempt
        if known.get("number") != number:
            return 0, list(sites)
        return int(known["attempt"]), list(known["sites"])

    def _reply(self, number: int, site: str) -> Path:
        return self.folder / "rounds" / str(number) / f"{site}.pt"

    def close(self, took: Sequence[str], replies: Mapping[str, Any], memory: Mapping[str, Any]) -> None:
        """Close the open round.

        Args:
            took: sites that took part.
            replies: to all sites.
            memory: what the rule and the guard remember behind it.
        """
        number = self.number
        for site, reply in replies.items():
            write(reply, self._reply(number, site))
        self.took[number] = sorted(took)
        self.number, self.memory = max(number + 1, 0), dict(memory)
        self._write()
        for site in self.sites:
            if site not in took and site not in self.took.get(number - 1, [site]):
                self._drop(number - 1, site)  # one who stays away needs the newest alone

    def _drop(self, number: int, site: str) -> None:
        path = self._reply(number, site)
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()

    def saved(self, site: str, number: int) -> None:
        """A site will not go back behind a round: replies to it before that can go."""
        for old in range(self._saved[site], min(number, self.number - 1)):
            self._drop(old, site)
        self._saved[site] = max(self._saved[site], min(number, self.number - 1))

    def after(self, number: int, site: str) -> int:
        """The next round behind a closed one in which a site takes part, or did before it was started again."""
        after = max(number + 1, 0)
        while after < self.number and site not in self.took[after]:
            after += 1
        return after

    def read(self, number: int, site: str) -> dict[str, Any]:
        """The reply to a site in a closed round.

        Raises:
            ConfigError: it is no longer there, or is damaged.
        """
        path = self._reply(number, site)
        if not path.is_file():
            raise ConfigError(
                f"expected what {site} was told in round {number + 1}, found that it is gone: the site said that it "
                "had a later checkpoint. Let the site continue from its newest checkpoint"
            )
        reply: dict[str, Any] = read(
            path, f"put it back from a backup, or move the folder {self.folder} away and let all sites begin anew"
        )
        return reply
