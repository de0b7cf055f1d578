"""A coordinator that tries to get round masked sums: it makes a site unfit to see a sum without it,
or it asks for less protection than a site has accepted before.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from drill.federation import import_all
from drill.forks import ended, kill, start, told

Rows = list[tuple[str, int, int, str]]
PATIENCE = 120
VICTIM = "dune"
SITES = ("ash", "birch", "cedar", VICTIM)
POISON = 3e38
"""A finite number from which no update is fit."""


def exclude(folder: Path, tries: int) -> Rows:
    """Send one of four sites a poisoned model behind the first round, and the others the old one
    again; then ask those who are fit for their sum. Sites and their code are stock. It passes where
    there is no second sum.
    """
    import_all()
    rows = []
    for rate in (0.001, 0.01):
        found = [_excluded(folder / f"{rate}-{number}", rate) for number in range(tries)]
        passed = sum(not own for own in found)
        note = next((own for own in found if own), "no sum without the site that was made unfit")
        rows.append((f"a site is made unfit, SGD {rate}", tries, passed, note))
    return rows


def _excluded(folder: Path, rate: float) -> str:
    """What the coordinator has learnt of one site's update; empty if nothing."""
    from functools import partial

    import torch
    from federations import Dry
    from sites import over_sites

    from fedlit import FederatedClient
    from fedlit.errors import FedlitError
    from fedlit.privacy.settings import Masked, Privacy

    with _lying() as seen, suppress(FedlitError):  # the sites refuse
        over_sites(
            folder,
            privacy=Privacy(masked=Masked(norm=10.0)),
            clients=SITES,
            epochs=2,
            loop={
                "optimizer": partial(torch.optim.SGD, lr=rate),
                "client": partial(FederatedClient, network=Dry),
            },
            exchange={"federated": ["core"], "buffers": "private"},
            data={"batches": 1},
        )
    if seen["sums"].keys() != {0, 1}:
        return ""
    start_ = seen["start"]
    true = seen["true"]
    names = [name for name in seen["sums"][0] if start_[name].is_floating_point()]

    def flat(state: Mapping[str, Any]) -> Any:
        return torch.cat([state[name].double().reshape(-1) for name in names])

    update = flat(true) - flat(start_)
    guess = flat(seen["sums"][0]) - flat(seen["sums"][1]) - flat(start_)
    cosine = float(torch.cosine_similarity(guess, update, 0))
    return f"the difference of two sums is the update of {VICTIM}, cosine {cosine:.3f}"


@contextmanager
def _lying() -> Iterator[dict[str, Any]]:
    """Let the coordinator lie, and observe what it gets, and what the victim's first update was."""
    import sites
    import torch

    from fedlit.errors import RunError
    from fedlit.exchange.outcome import Outcome
    from fedlit.institutions.serving.rounds import Rounds
    from fedlit.privacy.coordinator import Gathering
    from fedlit.privacy.site import Shield

    seen: dict[str, Any] = {"sums": {}, "start": {}, "true": {}}
    stock = (Rounds._reply, Rounds._aggregate, Shield.meet, Shield.send, sites.MemoryLine)
    reply, aggregate, meet, send, line = stock

    class Impatient(line):  # type: ignore[misc, valid-type]
        """Ends the coordinator when a site has refused: it would wait for ever."""

        def requests(self, timeout: float) -> Any:
            if len(self.here) < len(SITES):
                raise RunError("a site has refused")
            return super().requests(timeout)

    def lie(self: Any, site: str, outcome: Any, records: Any) -> dict[str, Any]:
        told_: dict[str, Any] = reply(self, site, outcome, records)
        if self.hub.journal.number == 0:
            told_["received"] = {
                name: torch.full_like(value, POISON)
                if site == VICTIM
                else seen["start"][name].clone()
                for name, value in told_["received"].items()
            }
        return told_

    def ask(
        self: Any, number: int, present: Mapping[str, Any], asking: Any
    ) -> tuple[Outcome, list[str]]:
        flags = {site: (not own.get("unfit"), own["flags"]) for site, own in present.items()}
        masked = self.hub.privacy.masked
        server = self.hub.server
        gathering = Gathering(
            masked, server.rule, server.sharing, number, flags, asking.ask_for_sums
        )
        gathering.sites = [site for site, (fit, _) in flags.items() if fit]
        ((_, update),) = gathering.gather().items()
        count = len(gathering.sites)
        seen["sums"][number] = {
            name: value.double() * count for name, value in update.state.items()
        }
        if number == 1:
            raise RunError("the coordinator has what it wants")
        return Outcome({site: dict(update.state) for site in self.hub.sites}), list(present)

    def remember(self: Any, offers: Any, sharing: Any, start_: Any, *more: Any) -> None:
        seen["start"].update(deepcopy(dict(start_)))
        meet(self, offers, sharing, start_, *more)

    def watch(self: Any, number: int, update: Any) -> Any:
        if self.site == VICTIM and number == 0:
            seen["true"] = {name: value.detach().clone() for name, value in update.state.items()}
        return send(self, number, update)

    Rounds._reply, Rounds._aggregate = lie, ask  # type: ignore[method-assign]
    Shield.meet, Shield.send, sites.MemoryLine = remember, watch, Impatient  # type: ignore[method-assign, misc]
    try:
        yield seen
    finally:
        Rounds._reply, Rounds._aggregate = reply, aggregate  # type: ignore[method-assign]
        Shield.meet, Shield.send, sites.MemoryLine = meet, send, line  # type: ignore[method-assign, misc]


IDENTITY = {"id": "0123456789abcdef" * 2, "sites": ["breast_cancer", "digits", "iris", "wine"]}
STRONG = {
    "masked": {"norm": 10.0, "least": 4},
    "client_level": {"clip": 1.0, "noise": 2.0, "answers": 9},
}
WEAKER: dict[str, dict[str, Any]] = {
    "without privacy": {"federation": IDENTITY},
    "without privacy and identity": {},
    "without masks": {"federation": IDENTITY, "privacy": {"client_level": STRONG["client_level"]}},
    "without noise": {"federation": IDENTITY, "privacy": {"masked": STRONG["masked"]}},
    "less noise": {
        "federation": IDENTITY,
        "privacy": {**STRONG, "client_level": {**STRONG["client_level"], "noise": 0.1}},
    },
    "longer norm": {
        "federation": IDENTITY,
        "privacy": {**STRONG, "masked": {"norm": 1e6, "least": 4}},
    },
    "smaller least": {"federation": IDENTITY, "privacy": {**STRONG, "masked": {"norm": 10.0}}},
}
"""What the coordinator sends instead of the accepted federation → the groups of its file."""


def weaker(folder: Path, tries: int) -> Rows:
    """Accept a federation with masks and noise, then get another ``federation.yaml`` and start with
    the hash of its terms, as an unattended site does. It passes where the site stops, and nothing
    more was accepted.
    """
    import_all()
    site = folder / "wine"
    _written(site, {"federation": IDENTITY, "privacy": STRONG})
    first = _joined(site, folder / "strong.log")
    if first:
        return [
            ("weaker protection", len(WEAKER), 0, f"the strong terms were not accepted: {first}")
        ]
    wrong = []
    for case, groups in WEAKER.items():
        _written(site, groups)
        if not _joined(site, folder / f"{case.replace(' ', '-')}.log"):
            wrong.append(f"{case} was accepted by its hash")
            _written(site, {"federation": IDENTITY, "privacy": STRONG})
    note = "; ".join(wrong) or "the hash alone was not enough"
    return [("weaker protection", len(WEAKER), len(WEAKER) - len(wrong), note)]


def _written(site: Path, groups: Mapping[str, Any]) -> None:
    import test_sites
    import yaml

    from fedlit.institutions.certificates import make_authority, make_site_keys

    if not site.exists():
        site.mkdir()
        make_authority(site, "trial")
        make_site_keys(site, "wine")
    content = test_sites.settings(**groups)
    (site / "federation.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    source = {"class_path": "fedlit.Bundled", "init_args": {"clients": ["wine"]}}
    settings = {"site": "wine", "coordinator": "localhost:9", "data": {"source": source}}
    (site / "site.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def _joined(site: Path, log: Path) -> str:
    """Join with the hash of the terms; why they were not accepted, empty if they were."""
    from fedlit.__main__ import main

    config = str(site / "site.yaml")
    check = start(lambda: main(["site", "check", "--config", config]), log)
    if ended(check, PATIENCE) != 0:
        raise SystemExit(told(log))
    (hash_,) = re.findall(r"Hash of all this: ([0-9a-f]{64})", told(log, 100_000))
    process = start(lambda: main(["site", "join", "--config", config, "--accept", hash_]), log)
    accepted = site / "accepted.json"
    until = time.monotonic() + PATIENCE
    code = None
    known = False
    while code is None and not known and time.monotonic() < until:
        code = ended(process, 0.5)
        entries = json.loads(accepted.read_text(encoding="utf-8")) if accepted.exists() else []
        known = any(own["hash"] == hash_ for own in entries)
    if code is None:
        kill(process)
        ended(process, 5)
    if known:
        return ""
    return f"exit status {code}: {told(log)[-200:]}"
