"""What one row alone has does not leave a site: names of categories, of classes, and values of
numbers."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from federations import different, weights
from sites import MemoryLine, federate, settings_of
from torch import Tensor

import fedlit
from fedlit.errors import ConfigError, DataError
from fedlit.exchange.wire import unpack
from fedlit.institutions.site import Site
from fedlit.run.run import Run

SITES = ("north", "south", "west")
RARE = {"diagnosis": "Fatal familial insomnia", "physician": "Erika Mustermann"}
NUMBERS = ("age", "dose", "marker")
TRAINING = 144


def ward(seed: int) -> pd.DataFrame:
    """200 rows, 144 of them for training: at each site the first one alone has the rare diagnosis
    and physician, and the marker is known of three.
    """
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(55, 15, 200),
            "dose": rng.gamma(2.0, 3.0, 200),
            "marker": np.where(np.arange(200) < 3, rng.normal(0, 1, 200), np.nan),
            "diagnosis": rng.choice(["asthma", "gout", "sepsis", "stroke"], 200),
            "physician": rng.choice([f"physician {place}" for place in range(6)], 200),
            "ward": rng.choice(["east wing", "west wing"], 200),
            "outcome": rng.choice(["died", "home", "moved"], 200),
            "part": ["train"] * TRAINING + ["validation"] * 16 + ["test"] * 40,
        }
    )
    for column, name in RARE.items():
        frame.loc[0, column] = name
    frame.loc[1, "diagnosis"] = "rare at north alone" if seed == 0 else "asthma"
    frame.loc[1:12, "diagnosis"] = (
        "rare at north alone" if seed == 1 else frame.loc[1:12, "diagnosis"]
    )
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tables")
    for place, site in enumerate(SITES):
        ward(place).to_csv(made / f"{site}.csv", index=False)
    return made


def source(folder: Path, *sites: str) -> dict[str, Any]:
    told = {
        "files": {site: str(folder / f"{site}.csv") for site in sites},
        "target": "outcome",
        "split": {"column": "part"},
        "types": {
            **dict.fromkeys(("diagnosis", "physician", "ward"), "categorical"),
            "marker": "numeric",
        },
    }
    return {"class_path": "fedlit.Tables", "init_args": told}


ALIGNED = {"align": "both", "scaling": "pooled", "bins": "agreed"}
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "indicators": ({**ALIGNED, "categories": "indicators"}, "fedlit.MLP", {"federated": ["*"]}),
    "auto": (
        {**ALIGNED, "categories": "auto", "missing": "indicator"},
        "fedlit.MLP",
        {"federated": ["*"]},
    ),
    "codes": ({**ALIGNED, "categories": "codes"}, "fedlit.TabM", {"federated": ["*"]}),
    "by name": ({"categories": "codes"}, "fedlit.TabM", {"federated": ["*"], "by_name": ["*"]}),
    "common": ({"common": "all", "categories": "auto"}, "fedlit.TabM", {"federated": ["core.*"]}),
}


def configuration(case: str, **data: Any) -> dict[str, Any]:
    of_case, network, exchange = CASES[case]
    client = {
        "class_path": "fedlit.FederatedClient",
        "init_args": {"network": {"class_path": network}},
    }
    return {
        "seed": 3,
        "data": {"batches": 2, **of_case, **data},
        "model": {"client": client, "engine": "plain", "threads": 1},
        "exchange": {"every": "epoch", **exchange},
        "trainer": {"max_epochs": 2, "enable_progress_bar": False, "logger": False},
        "checkpoint": {"seconds": 0, "best": 0},
    }


def write(path: Path, content: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(dict(content)), encoding="utf-8")
    return path


def one_process(folder: Path, tables: Path, case: str, **data: Any) -> Run:
    content = configuration(case, source=source(tables, *SITES), **data)
    run = fedlit.load(
        str(write(folder / "whole.yaml", content)), f"--trainer.default_root_dir={folder / 'one'}"
    )
    run.fit(quiet=True)
    return run


def weights_of(sites: Mapping[str, Site]) -> dict[str, Tensor]:
    return {key: own for site in sites.values() for key, own in weights(site.run).items()}


def numbers_in(content: Any) -> Iterator[float]:
    """All numbers in JSON."""
    if isinstance(content, Mapping):
        content = list(content.values())
    if isinstance(content, list):
        for own in content:
            yield from numbers_in(own)
    elif isinstance(content, int | float):
        yield float(content)


@pytest.mark.parametrize("case", CASES)
def test_what_one_row_alone_has_does_not_leave_a_site(
    case: str, folder: Path, tmp_path: Path
) -> None:
    """Nothing is set: 5 rows is what holds where a site joins. The bits are those of one process
    with that value."""
    line = MemoryLine(list(SITES))
    path = write(tmp_path / "federation.yaml", configuration(case))
    _, sites, errors = federate(
        tmp_path, path, {site: source(folder, site) for site in SITES}, line=line
    )
    assert not errors
    for place, site in enumerate(SITES):
        sent = [content for way, name, content in line.messages if way == "from" and name == site]
        assert sent and not any(
            name.encode() in content for content in sent for name in RARE.values()
        )
        train = ward(place)[:TRAINING]
        values = {value for column in NUMBERS for value in train[column].dropna()}
        facts = [unpack(content).get("facts") for content in sent if b"share:" in content]
        assert any(own for own in facts)
        assert values.isdisjoint(numbers_in(facts))
        noted: list[Any] = list(sites[site].run.data.notes)
        notes = Counter(note.column for note in noted if getattr(note, "kind", "") == "withheld")
        assert notes["physician"] == 1 and max(notes.values()) == 1
    whole = one_process(tmp_path, folder, case, facts_from=5)
    assert (
        different(
            weights(whole),
            {key: own for site in sites.values() for key, own in weights(site.run).items()},
        )
        == []
    )


def test_with_one_row_for_each_value_all_of_it_leaves(folder: Path, tmp_path: Path) -> None:
    line = MemoryLine(list(SITES))
    path = write(tmp_path / "federation.yaml", configuration("indicators", facts_from=1))
    _, sites, errors = federate(
        tmp_path, path, {site: source(folder, site) for site in SITES}, line=line
    )
    assert not errors
    sent = b"".join(content for way, _, content in line.messages if way == "from")
    assert all(name.encode() in sent for name in RARE.values())
    whole = one_process(tmp_path, folder, "indicators")
    assert (
        different(
            weights(whole),
            {key: own for site in sites.values() for key, own in weights(site.run).items()},
        )
        == []
    )


def test_means_stand_for_the_rows_that_the_terms_say(folder: Path, tmp_path: Path) -> None:
    """Against sums over sorted lists, and counts of the file."""
    site = Site(
        settings_of(
            tmp_path,
            "north",
            write(tmp_path / "f.yaml", configuration("indicators")),
            source(folder, "north"),
        )
    )
    terms = site.terms()
    train = ward(0)[:TRAINING]
    sent = terms.facts["values"]
    assert sent["moments"]["marker"] == [0, 0.0, 0.0] and sent["sketches"]["marker"] == [0]
    for column in ("age", "dose"):
        ordered = sorted(train[column])
        count, *quantiles = sent["sketches"][column]
        assert count == TRAINING and len(quantiles) == TRAINING // 5
        assert math.isclose(quantiles[0], math.fsum(ordered[:5]) / 5)
        assert math.isclose(quantiles[-1], math.fsum(ordered[-5:]) / 5)
        assert quantiles == sorted(quantiles)
        assert terms.behind["sketches"][column] == 5 and terms.behind["moments"][column] == TRAINING
    for column in ("diagnosis", "physician", "ward"):
        rows = train[column].value_counts()
        expected = {name: count for name, count in sorted(rows.items()) if count >= 5}
        assert sent["categories"][column] == [*expected] and terms.behind["categories"][column] == [
            *expected.values()
        ]
    assert terms.behind["target"]["labels"] == dict(sorted(train["outcome"].value_counts().items()))
    shown = "\n".join(terms.lines())
    assert all(re.search(rf"\b{rows}\b", shown) for rows in terms.behind["categories"]["diagnosis"])


def test_a_category_that_another_site_names_is_encoded_by_it(folder: Path, tmp_path: Path) -> None:
    """One row of north has what twelve of south have: north does not name it, and its row is
    encoded as south's."""
    run = one_process(tmp_path, folder, "indicators", facts_from=5)
    told = run.data.statements["north"]["categories"]["diagnosis"]
    assert "rare at north alone" not in told.value and told.withheld["rare at north alone"] == 1
    (north,) = [client for client in run.data.clients if client.spec.name == "north"]
    place = north.spec.features.index("diagnosis=rare at north alone")
    assert north.train.x[:, place].nonzero().flatten().tolist() == [1]
    coded = [name.startswith("diagnosis=") for name in north.spec.features]
    # as a category that no training row has
    assert north.train.x[0, coded].tolist() == [0.0] * sum(coded)


@pytest.mark.parametrize("case", ["indicators", "by name"])
def test_a_class_of_few_rows_ends_the_join_unless_allowed(case: str, tmp_path: Path) -> None:
    frame = ward(0)
    frame.loc[:1, "outcome"] = "vanished"
    frame.to_csv(tmp_path / "north.csv", index=False)
    path = write(tmp_path / "federation.yaml", configuration(case))
    settings = settings_of(tmp_path, "north", path, source(tmp_path, "north"))
    with pytest.raises(DataError, match=r"facts_from.* 2 .*'vanished'"):
        Site(settings).terms()
    terms = Site(replace(settings, rare_classes=("vanished",))).terms()
    assert terms.rare_classes == ("vanished",) and terms.behind["target"]["labels"]["vanished"] == 2
    assert any("vanished (2)" in line for line in terms.lines())
    with pytest.raises(ConfigError, match="nobody"):
        Site(replace(settings, rare_classes=("nobody",))).terms()


def test_classes_that_stay_at_a_site_may_be_rare(tmp_path: Path) -> None:
    frame = ward(0)
    frame.loc[:1, "outcome"] = "vanished"
    frame.to_csv(tmp_path / "north.csv", index=False)
    path = write(tmp_path / "federation.yaml", configuration("common"))
    terms = Site(settings_of(tmp_path, "north", path, source(tmp_path, "north"))).terms()
    assert "vanished" not in json.dumps(terms.to_dict())


def test_terms_have_what_was_found_and_what_is_known(tmp_path: Path) -> None:
    """A leak in a site's table, and the site's reason. Neither changes what leaves the site."""
    frame = ward(0)
    frame.assign(code=frame["outcome"].str.upper()).to_csv(tmp_path / "north.csv", index=False)
    path = write(tmp_path / "federation.yaml", configuration("indicators"))
    settings = settings_of(tmp_path, "north", path, source(tmp_path, "north"))
    found = Site(settings).terms()
    known = Site(
        replace(settings, data={**settings.data, "known": {"code": "set at admission"}})
    ).terms()
    assert "code: alone predicts outcome" in " ".join(" ".join(found.lines()).split())
    assert "set at admission" in " ".join(known.lines()) and known.known == {
        "code": "set at admission"
    }
    assert found.facts == known.facts and "set at admission" not in repr(known.facts)
