"""Masked federations of real processes, in copies of one folder: what sites end with if nothing
happens to them.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import torch
from institutions import ROWS, Federation, prepared

Rows = list[tuple[str, int, int, str]]
Weights = dict[str, dict[str, torch.Tensor]]
PATIENCE = 600


def undisturbed(folder: Path, rounds: int) -> tuple[Federation, Weights]:
    """Return a federation that has not begun, and what its sites end with if it is left alone.

    Args:
        folder: which keeps both; what is there already is not made again.
        rounds: of one epoch each.
    """
    config, sites, changes = ROWS["masked sums"]
    small = {
        "trainer": {"max_epochs": rounds},
        "checkpoint": {"seconds": 0, "best": 0},
        "data": {"batches": 2},
    }
    settings, sources, _ = prepared(config, sites, {**changes, **small})
    kept = folder / "expected.pt"
    if not kept.exists():
        alone = twin(Federation(folder / "new", settings, sources), folder / "alone")
        codes = alone.run()
        if any(code != 0 for code in codes.values()):
            raise SystemExit(f"expected exit status 0 of all, found {codes}\n{alone.said()}")
        weights = {site: alone.weights(site) for site in sites}
        torch.save({"hashes": alone.hashes, "weights": weights}, kept)
    found = torch.load(kept, weights_only=True)
    made = Federation.__new__(Federation)
    made.folder = folder / "new"
    made.sources = sources
    made.hashes = found["hashes"]
    made.environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    made.prefixes = {}
    return made, found["weights"]


def twin(federation: Federation, folder: Path) -> Federation:
    """Return the same federation, not begun, in another folder: with the same keys, and so with the
    same masks.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(federation.folder, folder)
    other = copy.copy(federation)
    other.folder = folder
    other.processes = {}
    other.hashes = copy.deepcopy(federation.hashes)
    other.prefixes = {}
    return other


def reached(site: Path, number: int) -> bool:
    """Return whether a site has sent something for a round."""
    traffic = site / "traffic.jsonl"
    return traffic.exists() and f'"round:{number}"' in traffic.read_text(encoding="utf-8")


def wrong_of(
    federation: Federation, codes: dict[str, int | None], expected: Weights, rounds: int
) -> list[str]:
    """Return what is wrong with a federation that has ended: statuses, tracebacks, bits,
    ledgers.
    """
    wrong = [
        f"{log.name}: a traceback" for log in federation.logs() if "Traceback" in log.read_text()
    ]
    if any(code != 0 for code in codes.values()):
        return [*wrong, f"exit status {codes}\n{federation.said()}"]
    return [*wrong, *federation.differing(expected)[:3], *answered_twice(federation, rounds)]


def answered(federation: Federation, site: str) -> list[dict[str, object]]:
    """Return all entries of a site's ledger about answers under protection; a damaged ledger is an
    error.
    """
    from fedlit.privacy.ledger import MEMORY, MEND
    from fedlit.store import Store

    return list(Store(federation.folder / site / "privacy" / MEMORY, MEND).values("entry").values())


def answered_twice(federation: Federation, rounds: int) -> list[str]:
    """Return what a site has answered for a round more than once, over other sites than all, or
    with other bytes.
    """
    wrong = list[str]()
    everybody = sorted(federation.sources)
    for site in everybody:
        entries = answered(federation, site)
        places = Counter((own["kind"], own["round"], own["question"]) for own in entries)
        if places != Counter(("masked", number, None) for number in range(rounds)):
            wrong.append(
                f"{site}: expected one masked answer for each of {rounds} rounds, found "
                f"{dict(places)}"
            )
        others = [own["over"]["sites"] for own in entries if own["over"]["sites"] != everybody]  # type: ignore[index]
        wrong += [f"{site}: an answer over {names}" for names in others]
        wrong += [
            f"{site}: {key} was sent with other bytes" for key in _changed(federation.folder / site)
        ]
    return wrong


def _changed(site: Path) -> list[str]:
    """Return the masked answers that left a site with other bytes when it was asked again."""
    sent = dict[str, set[str]]()
    for line in (site / "traffic.jsonl").read_text(encoding="utf-8").splitlines():
        noted = json.loads(line)
        if isinstance(noted["names"], dict) and "masked" in noted["names"]:
            sent.setdefault(noted["key"], set()).add(noted["sha256"])
    return [key for key, digests in sent.items() if len(digests) > 1]
