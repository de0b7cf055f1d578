"""Tables in which one row alone has a diagnosis, a physician or a class: what the terms of a site
say of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

Rows = list[tuple[str, int, int, str]]
NAMES = ("Fatal familial insomnia", "Erika Mustermann")
ALIGNED = {"align": "both", "scaling": "pooled", "bins": "agreed"}
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "indicators": ({**ALIGNED, "categories": "indicators"}, "fedlit.MLP", {}),
    "auto": ({**ALIGNED, "categories": "auto"}, "fedlit.MLP", {}),
    "codes": ({**ALIGNED, "categories": "codes"}, "fedlit.TabM", {}),
    "slices by name": ({"categories": "codes"}, "fedlit.TabM", {"by_name": ["*"]}),
}
"""What is asked of a site → settings of data, the network, and settings of the exchange."""


def rare(folder: Path, tries: int) -> Rows:
    """Ask a site in different ways; search what would leave for what one row alone has."""
    found = {case: _left(folder / case.replace(" ", "-"), case) for case in CASES}
    wrong = [f"{case} ({why})" for case, why in found.items() if why]
    facts = (
        "facts of one row",
        len(found),
        len(found) - len(wrong),
        "; ".join(wrong) or "neither names nor values",
    )
    why = _named(folder / "class")
    return [
        facts,
        ("a class of two rows", 1, int(not why), why or "the join ends, with its name and the key"),
    ]


def _table() -> pd.DataFrame:
    """200 rows, 144 of them for training; the first one alone has the names."""
    draws = np.random.default_rng(8)
    frame = pd.DataFrame(
        {
            "age": draws.normal(55, 15, 200),
            "diagnosis": draws.choice(["asthma", "gout", "sepsis", "stroke"], 200),
            "physician": draws.choice([f"physician {place}" for place in range(6)], 200),
            "outcome": draws.choice(["died", "home", "moved"], 200),
            "part": ["train"] * 144 + ["validation"] * 16 + ["test"] * 40,
        }
    )
    frame.loc[0, ["diagnosis", "physician"]] = NAMES
    return frame


def _check(folder: Path, frame: pd.DataFrame, case: str) -> subprocess.CompletedProcess[str]:
    """Run ``fedlit site check`` on a table."""
    folder.mkdir(parents=True)
    frame.to_csv(folder / "table.csv", index=False)
    data, network, exchange = CASES[case]
    client = {
        "class_path": "fedlit.FederatedClient",
        "init_args": {"network": {"class_path": network}},
    }
    federation = {
        "data": {"batches": 2, **data},
        "model": {"client": client},
        "exchange": {"every": "epoch", "federated": ["*"], **exchange},
        "trainer": {"max_epochs": 2},
    }
    tables = {"files": {"north": "table.csv"}, "target": "outcome", "split": {"column": "part"}}
    tables["types"] = dict.fromkeys(("diagnosis", "physician"), "categorical")
    source = {"class_path": "fedlit.Tables", "init_args": tables}
    site = {"site": "north", "coordinator": "localhost:8443", "data": {"source": source}}
    _write(folder / "federation.yaml", federation)
    _write(folder / "site.yaml", site)
    words = [sys.executable, "-P", "-m", "fedlit", "site", "check", "--config", "site.yaml"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")


def _left(folder: Path, case: str) -> str:
    """Return what of a single row would leave; an empty text if nothing would."""
    frame = _table()
    done = _check(folder, frame, case)
    if done.returncode:
        return f"exit status {done.returncode}: {done.stderr[-300:]}"
    terms = json.loads((folder / "terms.json").read_text(encoding="utf-8"))
    text = json.dumps([terms["facts"], terms["tensors"]], ensure_ascii=False)
    names = [name for name in NAMES if name in text]
    values = [value for value in frame["age"][:144] if repr(value) in text]
    return f"{', '.join(names) or 'no name'}, and {len(values)} values" if names or values else ""


def _named(folder: Path) -> str:
    frame = _table()
    frame.loc[:1, "outcome"] = "vanished"
    done = _check(folder, frame, "indicators")
    said = done.stdout + done.stderr
    refused = done.returncode == 2 and "vanished" in said and "rare_classes" in said
    return "" if refused else f"exit status {done.returncode}: {said[-300:]}"
