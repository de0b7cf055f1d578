"""What a coordinator must know after a restart: the facts that sites sent before training, and its
replies to each.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError
from fedlit.exchange.schedule import BEGIN
from fedlit.institutions.plain import Facts, Message
from fedlit.store import Store

FORMAT = 5
KEPT = ("number", "memory", "told", "took", "void", "done")
HEAD = "/"
"""The key of the entry that is not a reply; no site has this name."""


class Journal:
    """Replies on disk, by round and site. They are written before they are sent, so that a site
    that starts again from a checkpoint gets the same replies, whoever was killed. A round is
    written in one transaction.

    Args:
        folder: the folder of the file ``journal.db``.
        sites: the sites of the federation, sorted. Sites that it began with may be missing, because
            they were removed.
        start: the first round: :data:`~fedlit.exchange.server.BEGIN` if the rule defines what
            clients start from, else 0.

    Attributes:
        number: the number of the open round.
        memory: the state of the rule and the guard before the open round.
        told: maps each topic to the facts of each site.
        took: maps each closed round to the sites that took part in it.
        void: maps each closed round without a masked sum to the sites that called their update
            unfit.
        done: the sites at which training is over.

    Raises:
        ConfigError: the journal lacks one of the sites, has another format, or is damaged.
    """

    def __init__(self, folder: Path, sites: Sequence[str], start: int) -> None:
        self.folder = folder
        self.sites = list(sites)
        self.number = start
        self.memory = dict[str, Any]()
        self.told: dict[str, Facts] = {}
        self.took: dict[int, list[str]] = {}
        self.void: dict[int, list[str]] = {}
        self.done: list[str] = []
        begin = (
            f"put it back from a backup, or move the folder {folder} away and let all sites "
            "begin anew"
        )
        self._store = Store(folder / "journal.db", begin)
        head = self._store.get(HEAD)
        if head:
            self._load(head)

    def _load(self, head: Message) -> None:
        gone = set(head["sites"]) - set(self.sites)
        new = set(self.sites) - set(head["sites"])
        if head["format"] != FORMAT or not self.sites or new:
            raise ConfigError(
                f"{self._store.path}: expected a federation of {', '.join(self.sites)}, found one "
                f"of {', '.join(head['sites'])} (format {head['format']}); take the same sites "
                f"or fewer, or move the folder {self.folder} away to begin anew"
            )
        for key in KEPT:
            setattr(self, key, head[key])
        if gone:
            self._revoke(gone)

    def _revoke(self, gone: Collection[str]) -> None:
        """Continue without sites that were taken off the list. The open round is void: nobody
        receives anything for it, and nobody sends for it again. What the others have agreed on from
        all columns stays as it is.
        """
        self.done = [site for site in self.done if site not in gone]
        if not self.took:
            # Before training, all is sent anew.
            self.told = {}
            self.number = min(self.number, 0)
            self._write()
            return
        self.leave_out(gone)
        nothing = {"received": {}, "lost": [], "records": {}, "bytes": 0, "verdict": None}
        # The guard's history compares all clients, so it begins anew.
        memory = {part: state for part, state in self.memory.items() if part != "guard"}
        self.close([], dict.fromkeys(self.sites, nothing), memory)

    def leave_out(self, sites: Collection[str]) -> None:
        """Forget what sites have sent, except what the others have agreed on from all columns:
        networks are as wide as that says.
        """
        for topic, facts_by_site in self.told.items():
            if topic not in ("columns", "values"):
                rest = {site: facts_by_site[site] for site in facts_by_site if site not in sites}
                self.told[topic] = rest
        self._write()

    def _write(
        self,
        replies: Mapping[tuple[str, int], object] | None = None,
        drop: Iterable[tuple[str, int, int]] = (),
    ) -> None:
        journal = {key: getattr(self, key) for key in (*KEPT, "sites")} | {"format": FORMAT}
        self._store.put({**(replies or {}), (HEAD, 0): journal}, drop)

    @property
    def begun(self) -> bool:
        """Whether the journal holds anything, that is, whether a coordinator ran before."""
        return bool(self.told)

    @property
    def left_out(self) -> frozenset[str]:
        """The sites without which training began: the others have agreed on facts, or begun,
        without them.
        """
        agreed = [set(facts_by_site) for facts_by_site in self.told.values()]
        began = self.took.get(BEGIN)
        if began:
            agreed.append(set(began))
        everywhere = set(self.sites).intersection(*agreed)
        return frozenset(self.sites) - everywhere

    @property
    def members(self) -> list[str]:
        """The sites that take part, or may come back to do so."""
        left_out = self.left_out
        return [site for site in self.sites if site not in left_out]

    def tell(self, topic: str, facts_by_site: Facts) -> None:
        """Record what all sites sent on a topic."""
        self.told[topic] = dict(facts_by_site)
        self._write()

    def ended(self, site: str) -> None:
        """Record that training is over at a site."""
        if site not in self.done:
            self.done.append(site)
            self._write()

    def close(
        self,
        took: Sequence[str],
        replies: Mapping[str, Message],
        memory: Message,
        void: Sequence[str] = (),
    ) -> None:
        """Close the open round.

        Args:
            took: the sites that took part.
            replies: the replies to all sites.
            memory: the state of the rule and the guard after the round.
            void: the sites that called their update unfit, if there is no sum because of them.
        """
        number = self.number
        self.took[number] = sorted(took)
        if void:
            self.void[number] = sorted(void)
        self.number = max(number + 1, 0)
        self.memory = dict(memory)
        stayed_away = set(self.sites) - set(took) - set(self.took.get(number - 1, self.sites))
        self._write(
            {(site, number): reply for site, reply in replies.items()},
            # one who stays away needs the newest alone
            drop=[(site, number - 1, number) for site in stayed_away],
        )

    def void_in_a_row(self) -> list[int]:
        """Return the rounds without a sum right before the open one."""
        first = self.number
        while first - 1 in self.void:
            first -= 1
        return list(range(first, self.number))

    def saved(self, site: str, number: int) -> None:
        """Delete earlier replies to a site that will not go back behind a round."""
        self._store.put({}, drop=[(site, BEGIN, max(BEGIN, min(number, self.number - 1)))])

    def after(self, number: int, site: str) -> int:
        """Return the next round after a closed one in which a site takes part, or did before it was
        started again.
        """
        after = max(number + 1, 0)
        while after < self.number and site not in self.took[after]:
            after += 1
        return after

    def read(self, number: int, site: str) -> Message:
        """Return the reply to a site in a closed round.

        Raises:
            ConfigError: the reply has been deleted.
        """
        reply: Message | None = self._store.get(site, number)
        if reply is None:
            raise ConfigError(
                f"expected the reply to {site} in round {number + 1}, found that it was deleted: "
                "the site reported a later checkpoint. Let the site continue from its newest "
                "checkpoint"
            )
        return reply
