"""What a coordinator must know after it was killed: what sites said before training, and what it replied to each."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedlit.errors import ConfigError
from fedlit.exchange.aggregation import BEGIN
from fedlit.train.whole import write

__all__ = ["Journal"]

FORMAT = 2
_log = logging.getLogger(__name__)


class Journal:
    """Replies on disk, by key and site. They are written before they are sent, so that a site that begins again from
    a checkpoint gets the same ones, whoever was killed.

    Args:
        folder: where it lies.
        sites: of the federation, sorted. Some of those that it began with may be missing: they were removed.
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
        ConfigError: a journal of other sites or of a later version.
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
        if self._head.is_file():
            self._load()

    @property
    def _head(self) -> Path:
        return self.folder / "journal.pt"

    def _load(self) -> None:
        known = torch.load(self._head, weights_only=True)
        removed = set(known["sites"]) - set(self.sites)
        if known["format"] != FORMAT or {*self.sites, *removed} != set(known["sites"]):
            raise ConfigError(
                f"{self._head}: expected a federation of {', '.join(self.sites)}, found one of "
                f"{', '.join(known['sites'])} (format {known['format']}); take the same sites or "
                f"some of them, or move the folder "
                f"{self.folder} away to begin anew"
            )
        for key in ("name", "number", "memory", "told", "took", "done"):
            setattr(self, key, known[key])
        self._attempt = known["attempt"]
        if removed:
            self._attempt = {}  # the open round is void
            self.done = [site for site in self.done if site not in removed]
            if not self.took:  # else the plan stands, and a removed site is one that stays away
                self.told = {
                    topic: {site: own for site, own in said.items() if site not in removed}
                    for topic, said in self.told.items()
                }
            _log.warning("goes on without %s, which is no longer under sites:", ", ".join(sorted(removed)))
            self._write()

    def _write(self) -> None:
        own = {key: getattr(self, key) for key in ("name", "sites", "number", "memory", "told", "took", "done")}
        write({"format": FORMAT, "attempt": self._attempt, **own}, self._head)

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
            ConfigError: it is no longer there.
        """
        path = self._reply(number, site)
        if not path.is_file():
            raise ConfigError(
                f"expected what {site} was told in round {number + 1}, found that it is gone: the site said that it "
                "had a later checkpoint. Let the site continue from its newest checkpoint"
            )
        reply: dict[str, Any] = torch.load(path, weights_only=True)
        return reply
