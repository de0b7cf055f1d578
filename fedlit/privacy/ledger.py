"""The account of what a site has answered: one ledger for each site folder, over the file
``memory.db``.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypedDict, Unpack

from torch import Tensor

from fedlit.errors import RunError
from fedlit.files import sync, write_whole
from fedlit.privacy.keys import new_mask_key
from fedlit.privacy.masking import digest_of
from fedlit.privacy.settings import weaker
from fedlit.sharing import State
from fedlit.store import Store
from fedlit.types import State as Fields

MASK_KEY = "mask.key"
MEMORY = "memory.db"
RECEIVED = "received.db"
TOGETHER = (MASK_KEY, MEMORY, RECEIVED)
"""The files of a site that are of use only together. They are made at once, before anything is
sent."""

MEND = "restore it from a copy, or ask the coordinator for a new federation"


def prepare(folder: Path) -> None:
    """Make the site's files of :data:`TOGETHER`, all at once, or check that all of them are there.

    They are made in a folder beside it, which is renamed when it is complete: a process that is
    killed leaves all of them or none.

    Args:
        folder: the site's own folder for them.

    Raises:
        RunError: some of the files are gone.
    """
    # memory.pt is of earlier versions
    present = [name for name in (*TOGETHER, "memory.pt") if (folder / name).exists()]
    missing = [name for name in TOGETHER if not (folder / name).exists()]
    if present and missing:
        raise RunError(
            f"{folder}: expected {', '.join(TOGETHER)}, which were made together and say what this "
            f"site has sent, found that {', '.join(missing)} is gone; {MEND}"
        )
    if present:
        return
    begun = folder.with_name(f"{folder.name}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    begun.mkdir(parents=True, mode=0o700)
    write_whole({begun / MASK_KEY: lambda file: file.write(new_mask_key())})
    (begun / MASK_KEY).chmod(0o600)
    for name in (MEMORY, RECEIVED):
        Store(begun / name, MEND)
    if folder.exists():
        folder.rmdir()  # none of the files was there, so that the folder is empty
    begun.rename(folder)
    sync(folder.parent)


class Over(TypedDict):
    """What a masked answer may depend on.

    Attributes:
        sites: the sites of the sum.
        layout: the digest of its layout.
        received: the digest of what was received, since when, and what else all sites were told.
    """

    sites: list[str]
    layout: str
    received: list[object]


class Noted(TypedDict, total=False):
    """What is written down beside an answer.

    Attributes:
        noise: the noise of an update, in units of the clip.
        shared: maps each site to the names of its client's federated tensors.
    """

    noise: float
    shared: Mapping[str, list[str]]


class Entry(Noted):
    """One answer under protection.

    Attributes:
        federation: the identity of the federation.
        kind: ``masked`` or ``noised``.
        round: the number of exchanges before the round.
        question: the rule's question within the round; None for the update.
        over: what the answer may depend on.
    """

    federation: str
    kind: str
    round: int
    question: int | None
    over: Over | None


class Account(TypedDict, total=False):
    """What was agreed to.

    Attributes:
        protection: the settings of :class:`~fedlit.privacy.settings.Privacy`.
        sites: all sites of the federation, if its terms name them.
    """

    protection: Fields
    sites: list[str]


class Ledger:
    """What this site has answered, for each identity of a federation. It exists at every site, with
    and without protection, and one file holds the accounts of all federations that the site's
    folder ever joined.

    An entry is written, in one transaction, before the answer that it is about is sent. A site that
    is killed before this makes the answer anew, because nobody has seen it. A damaged file is
    refused: an older copy would lack an answer.

    To count a rule's question, call :meth:`charge` before it is answered:
    ``ledger.charge(number, position, kind, form, elements, times=50, most=1_000)``. It returns if the
    site may answer, and costs nothing where the same question of the same round is asked again.

    Args:
        folder: the site's own folder; the same for all federations that the site ever joins.
        federation: the identity of the federation that the site has accepted: ``federation.id``,
            or, without one, the hash of the terms, which include the coordinator's fingerprint (see
            :attr:`fedlit.institutions.terms.Terms.identity`). Other terms are then another
            account.

    Attributes:
        folder: see above.
        federation: see above.
        entries: all answers under protection, of all federations, oldest first.

    Raises:
        ConfigError: the file is damaged.
        RunError: the file, or one of those that were made with it, is gone.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as site:
        ...     ledger = Ledger(Path(site, "privacy"), "f" * 32)
        ...     for position in (0, 0, 1):
        ...         ledger.charge(0, position, "curvature", "at: float32 [30]", 930, times=2, most=930)
        ...     Ledger(Path(site, "privacy"), "f" * 32).count("curvature")
        2
    """

    def __init__(self, folder: Path, federation: str) -> None:
        prepare(folder)
        self.folder = folder
        self.federation = federation
        self._store = Store(folder / MEMORY, MEND)
        self.entries: list[Entry] = list(self._store.values("entry").values())
        self._asked = set[tuple[int, int, str, str]]()
        self._counts = Counter[tuple[str, int]]()
        for question in self._store.values(self._named("asked")).values():
            self._note(question["round"], question["place"], question["kind"], question["form"])

    def _note(self, number: int, position: int, kind: str, form: str) -> None:
        self._asked.add((number, position, kind, form))
        self._counts[kind, number] += 1

    def _named(self, subject: str) -> str:
        return f"{subject}/{self.federation}"

    # ------------------------------------------------------------------ the account itself

    @property
    def account(self) -> Account:
        """What was agreed to under this identity when the site took part last: ``protection`` and
        ``sites``; empty where it never did.
        """
        account: Account | None = self._store.get(self._named("account"))
        return account or {}

    def open(self, protection: Fields, sites: Iterable[str], without: Iterable[str] = ()) -> None:
        """Record what was agreed to, before anything is sent.

        Args:
            protection: the settings of :class:`~fedlit.privacy.settings.Privacy`, as plain data.
            sites: all sites of the federation, if its terms name them.
            without: the protection that a person has given up, in words of
                :data:`~fedlit.privacy.settings.WITHOUT`.

        Raises:
            RunError: it is weaker than before, and nobody gave that up.
        """
        if gone := [
            protection_lost
            for protection_lost in weaker(self.account.get("protection", {}), protection)
            if protection_lost not in without
        ]:
            raise RunError(
                "expected the protection under which this site took part before, found terms "
                f"without {' and '.join(gone)}; nothing was sent. Look at them: fedlit site check"
            )
        account: Account = {"protection": dict(protection), "sites": list(sites)}
        if account != self.account:
            self._store.put({(self._named("account"), 0): account})

    # ------------------------------------------------------------------ a rule's questions

    def charge(
        self,
        number: int,
        position: int,
        kind: str,
        form: str,
        elements: int,
        *,
        times: int,
        most: int,
    ) -> None:
        """Count a question against its budget, before it is answered.

        Args:
            number: the number of exchanges before the round.
            position: the question's number within the round, as the coordinator counts.
            kind: the kind of the question, or its topic.
            form: what tells the question from others, such as a digest of its content. The same
                form at the same position of the same round is the same question, which is counted
                once.
            elements: the number of values in its answer.
            times: how many questions of this kind a round may have.
            most: how many values an answer may have.

        Raises:
            RunError: it is beyond the budget; it was not counted, and must not be answered.
        """
        if (number, position, kind, form) in self._asked:
            return
        if elements > most:
            raise RunError(
                f"round {number + 1}: {kind}: expected a question for at most {most:,} values, as "
                f"agreed to, found one for {elements:,}; nothing was answered"
            )
        if self.count(kind, number) >= times:
            raise RunError(
                f"round {number + 1}: {kind}: expected at most {times:,} questions in a round, as "
                "agreed to, found one more; nothing was answered"
            )
        content = {
            "round": number,
            "place": position,
            "kind": kind,
            "form": form,
            "elements": elements,
        }
        self._store.put({(self._named("asked"), len(self._asked)): content})
        self._note(number, position, kind, form)

    def count(self, kind: str, number: int | None = None) -> int:
        """Return how many questions of a kind were counted, in a round or in all (None)."""
        if number is not None:
            return self._counts[kind, number]
        return sum(
            count for (counted_kind, _), count in self._counts.items() if counted_kind == kind
        )

    # ------------------------------------------------------------------ what came back

    def receive(self, number: int, received: State, *, once: bool) -> None:
        """Record the digest of what was received in a round.

        Args:
            number: exchanges before the round.
            received: what was received, by name.
            once: whether to refuse another result than before. Without protection a federation may
                begin anew under the same terms.

        Raises:
            RunError: it is another result than before; it is not used.
        """
        digest = digest_of(received, received)
        earlier_digest = self._store.get(self._named("received"), number)
        if once and earlier_digest not in (None, digest):
            raise RunError(
                f"round {number + 1}: expected the result that this site received before, found "
                "another one from the coordinator; it was not used. Ask whether its folder was "
                "restored from an older copy"
            )
        if earlier_digest != digest:
            self._store.put({(self._named("received"), number): digest})

    # ------------------------------------------------------------------ answers under protection

    def once(
        self,
        kind: str,
        number: int,
        question: int | None,
        make: Callable[[], State],
        over: Over | None = None,
        **noted: Unpack[Noted],
    ) -> dict[str, Tensor]:
        """Return the answer for a round, which is made at most once: it is sent again byte for
        byte, or not at all.

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
        entry: Entry = {
            "federation": self.federation,
            "kind": kind,
            "round": number,
            "question": question,
            "over": over,
            **noted,
        }
        identity = _identity(entry)
        for row, earlier in enumerate(self.entries):
            if _identity(earlier) != identity:
                continue
            answer: dict[str, Tensor] | None = self._store.get("answer", row)
            if earlier["over"] != over or answer is None:
                conflict = "a request for another sum"
                if answer is None:
                    conflict = "that it was deleted"
                raise RunError(
                    f"round {number + 1}: expected to be asked again for the same answer, which is "
                    f"{kind} only once, found {conflict}; nothing was sent. Two sums over different "
                    "sites, or two noisy answers, would tell more than one"
                )
            return answer
        answer = dict(make())
        row = len(self.entries)
        self._store.put({("entry", row): entry, ("answer", row): answer})
        self.entries.append(entry)
        return answer

    def forget(self, number: int) -> None:
        """Delete the answers before an exchange; the site has a checkpoint and will not go back.
        Entries stay.
        """
        old = [
            row
            for row, entry in enumerate(self.entries)
            if entry["federation"] == self.federation and entry["round"] < number
        ]
        self._store.put({}, drop=[("answer", row, row + 1) for row in old])


def _identity(entry: Entry) -> tuple[str, str, int, int | None]:
    """Return what tells the answer of an entry from others."""
    return entry["federation"], entry["kind"], entry["round"], entry["question"]
