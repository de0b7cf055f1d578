"""What a coordinator must know after it was killed: what sites said before training, and what it replied to each."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlit.archives import read_archive, write_archive
from fedlit.errors import ConfigError
from fedlit.exchange.outcome import BEGIN

__all__ = ["Journal"]

FORMAT = 3
_log = logging.getLogger(__name__)


class Journal:
    """Replies on disk, by key and site. They are written before they are sent, so that a site that begins again from
    a checkpoint gets the same ones, whoever was killed.

    Args:
        folder: where it lies.
        sites: of the federation, sorted. Some of those that it began with may be missing: they were removed.
        start: the first round: :data:`~fedlit.exchange.outcome.BEGIN` where the rule has something to say before
            training, else 0.

    Attributes:
        number: the round that is open.
        memory: what the rule and the guard remember before it.
        told: topic → site → facts.
        took: round → sites that took part, of those that are closed.
        done: sites where training is over.

    Raises:
        ConfigError: a journal of further sites or of a later version, or one that is damaged.
    """

    def __init__(self, folder: Path, sites: Sequence[str], start: int) -> None:
        self.folder, self.sites = folder, list(sites)
        self.number, self.memory = start, dict[str, Any]()
        self.told: dict[str, dict[str, Any]] = {}
        self.took: dict[int, list[str]] = {}
        self.done: list[str] = []
        self._saved = dict.fromkeys(self.sites, BEGIN)
        self._head, self._copy = folder / "journal.pt", folder / "journal.copy.pt"
        if self._head.is_file() or self._copy.is_file():
            self._load()

    def _load(self) -> None:
        begin = f"put both back from a backup, or move the folder {self.folder} away and let all sites begin anew"
        try:
            known = read_archive(self._head)
        except (ConfigError, FileNotFoundError) as error:
            try:
                known = read_archive(self._copy)
            except (ConfigError, FileNotFoundError) as other:
                raise ConfigError(f"{error}; {other}; {begin}") from error
            _log.warning("%s; its copy %s is used", error, self._copy.name)
        gone = set(known["sites"]) - set(self.sites)
        if known["format"] != FORMAT or not self.sites or set(self.sites) - set(known["sites"]):
            raise ConfigError(
                f"{self._head}: expected a federation of {', '.join(self.sites)}, found one of "
                f"{', '.join(known['sites'])} (format {known['format']}); take the same sites or fewer, or move the "
                f"folder {self.folder} away to begin anew"
            )
        for key in ("number", "memory", "told", "took", "done"):
            setattr(self, key, known[key])
        if gone:
            self._revoke(gone)

    def _revoke(self, gone: Collection[str]) -> None:
        """Go on without sites that were taken off the list. The open round is void: nobody receives anything for it,
        and nobody sends for it again. What the others have agreed on from all columns stays as it is.
        """
        self.done = [site for site in self.done if site not in gone]
        if not self.took:  # before training: all is told anew
            self.told, self.number = {}, min(self.number, 0)
            self._write()
            return
        for topic, said in self.told.items():
            if topic not in ("columns", "values"):
                self.told[topic] = {site: facts for site, facts in said.items() if site not in gone}
        nothing = {"received": {}, "lost": [], "records": {}, "bytes": 0, "verdict": None}
        # the guard's history is of clients side by side, and begins anew
        memory = {part: own for part, own in self.memory.items() if part != "guard"}
        self.close([], dict.fromkeys(self.sites, nothing), memory)

    def _write(self) -> None:
        own = {key: getattr(self, key) for key in ("sites", "number", "memory", "told", "took", "done")}
        for path in (self._copy, self._head):
            write_archive({"format": FORMAT, **own}, path)

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
            write_archive(reply, self._reply(number, site))
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
            ConfigError: it is no longer there.
        """
        path = self._reply(number, site)
        if not path.is_file():
            raise ConfigError(
                f"expected what {site} was told in round {number + 1}, found that it is gone: the site said that it "
                "had a later checkpoint. Let the site continue from its newest checkpoint"
            )
        reply: dict[str, Any] = read_archive(path)
        return reply
