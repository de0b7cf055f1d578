"""What the four papers hold (docs/papers.yaml), against studies, code and every NOTE[DIFF]; and the
page made of it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedlit.run.config import STUDIES, find_config, known_configs
from fedlit.study.lift import client_label
from fedlit.study.method import Paper
from fedlit.study.tables import NOTHING
from fedlit.tasks import COMPARED

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LISTED = DOCS / "papers.yaml"
PAGE = DOCS / "papers.md"
PLACES = ("study", "config", "code", "diff", "not compared")
KEYS = {"about", "note", *PLACES}
CONTENT: dict[str, Any] = yaml.safe_load(LISTED.read_text("utf-8"))
PAPERS: dict[str, dict[str, Any]] = CONTENT["papers"]
DIFFERENCES: dict[str, str] = CONTENT["differences"]
RESULTS: dict[str, dict[str, Any]] = CONTENT["results"]


def listed(item: Mapping[str, Any], place: str) -> list[str]:
    """What an item names of one kind, as a list."""
    named = item.get(place, [])
    return named if isinstance(named, list) else [named]


@cache
def studies() -> dict[str, dict[str, Any]]:
    """All shipped studies as their files have them, by name. That each can be read, test_study.py
    tests."""
    paths = [find_config(name, STUDIES) for name in known_configs(STUDIES)]
    return {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in paths}


@cache
def published() -> dict[str, Paper]:
    """The papers' figures: `study`, or `study/scenario` → figures, which may be empty."""
    found: dict[str, Paper] = {}
    for name, study in studies().items():
        parts = {name: study}
        parts |= {f"{name}/{scenario}": own for scenario, own in study.get("scenarios", {}).items()}
        found |= {where: Paper(**own["paper"]) for where, own in parts.items() if "paper" in own}
    return found


def claimed() -> dict[str, set[tuple[str, str]]]:
    """Study → the (paper, item) that its `paper: items` name."""
    found = dict[str, set[tuple[str, str]]]()
    for where, paper in published().items():
        (key,) = (key for key, known in PAPERS.items() if f"arXiv:{known['arxiv']}" in paper.source)
        found.setdefault(where.split("/")[0], set()).update((key, item) for item in paper.items)
    return found


# ------------------------------------------------------------------ every NOTE[DIFF]


END = re.compile(r"\n\s*(?:#\s*)?\n|\n\s*- |\n\s+[a-z_]+: |NOTE\[DIFF\]|\"\"\"")
"""Where a paragraph ends: at an empty line, another item of a list, another argument, or with the
text."""
COMMENT = re.compile(r"\n(?!\s*#)")
"""Where a comment ends: at a line without one."""


def notes() -> Iterator[tuple[str, str]]:
    """Each NOTE[DIFF] of the code: its file, and what follows as one line."""
    for path in sorted((ROOT / "fedlit").rglob("*.py")):
        text = path.read_text("utf-8")
        for found in re.finditer(r"(#[^\n]*)?NOTE\[DIFF\]:", text):
            rest = text[found.end() :]
            paragraph = (COMMENT if found[1] else END).split(rest)[0]
            yield (
                path.relative_to(ROOT).as_posix(),
                " ".join(re.sub(r"\n\s*#", "\n", paragraph).split()),
            )


def matching(file: str, text: str) -> list[str]:
    """The names of the differences that this NOTE[DIFF] is."""
    return [name for name, anchor in DIFFERENCES.items() if f"{file}: {text}".startswith(anchor)]


def test_each_departure_of_the_code_is_named_once() -> None:
    others = CONTENT["other papers"]
    found = Counter[str]()
    unnamed = []
    for file, text in notes():
        names = [file] if file in others else matching(file, text)
        found.update(names)
        unnamed += [] if len(names) == 1 else [f"{file}: {text[:60]}"]
    assert unnamed == [], f"name each once in {LISTED.name}, differences"
    assert set(found) == {*DIFFERENCES, *others}, "named, but not in the code"
    assert all(found[name] == 1 for name in DIFFERENCES)
    assert not {
        file
        for file in others
        if file in {anchor.split(": ")[0] for anchor in DIFFERENCES.values()}
    }


def test_each_named_departure_belongs_to_an_item() -> None:
    used = {
        name
        for paper in PAPERS.values()
        for item in paper["items"].values()
        for name in listed(item, "diff")
    }
    assert used == set(DIFFERENCES)


# ------------------------------------------------------------------ items


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_has_as_many_items_as_are_counted(name: str) -> None:
    counts = Counter(item.split(" ")[0] for item in PAPERS[name]["items"])
    assert counts == Counter(PAPERS[name]["counts"])


@pytest.mark.parametrize("name", PAPERS)
def test_every_item_is_somewhere(name: str) -> None:
    for title, item in PAPERS[name]["items"].items():
        assert set(item) <= KEYS and item["about"], title
        assert any(listed(item, place) for place in PLACES), title
        for config in listed(item, "config"):
            assert find_config(config).is_file(), title
        for path in listed(item, "code"):
            module, _, attribute = path.partition(":")
            assert hasattr(import_module(module), attribute), (title, path)


def test_studies_and_items_name_each_other() -> None:
    named = dict[str, set[tuple[str, str]]]()
    for key, paper in PAPERS.items():
        for title, item in paper["items"].items():
            for study in listed(item, "study"):
                named.setdefault(study, set()).add((key, title))
    assert named == claimed()
    assert all(paper.items for paper in published().values())


# ------------------------------------------------------------------ figures


def on_page(value: float, text: str) -> bool:
    """Whether a value in percent stands on a page, in percent or as a share."""
    forms = (f"{value:.2f}", f"{value:.1f}", f"{value / 100:.3f}")
    return any(re.search(rf"(?<![\d.]){re.escape(form)}(?!\d)", text) for form in forms)


@pytest.mark.parametrize("where", RESULTS)
def test_our_figures_stand_on_the_page_that_is_named(where: str) -> None:
    paper = published()[where]
    text = (DOCS / RESULTS[where]["page"]).read_text("utf-8")
    for metric, methods in RESULTS[where].items():
        for method, (_, *values) in methods.items() if metric != "page" else ():
            clients = [
                client for client, scores in paper.values[method].items() if metric in scores
            ]
            assert len(values) == len(clients), (metric, method)
            assert all(on_page(value, text) for value in values), (metric, method)


# ------------------------------------------------------------------ the page


ABOUT = """
fedlit was made for four papers. This page lists what each of them holds, item by item, and where it is: a study that
repeats it (`fedlit compare NAME`), a configuration, a class, or the reason why there is nothing to compare. *As the
paper* means that no departure is known. A name in the last column leads to the [departure](#departures).
"""
MADE = """
It is written by `python tests/study/test_papers.py` from `docs/papers.yaml`, which the tests hold against the studies
and against every `NOTE[DIFF]` of the code.
"""
FIGURES = """
In percent: ours, and in brackets the paper's; *–* where the study was not run. Seeds are those of our row.
`fedlit compare NAME` prints them side by side, with the reason where data are not the same.
"""


def page() -> str:
    """The page of all papers."""
    parts = ["# The papers", one_line(ABOUT), one_line(MADE)]
    for paper in PAPERS.values():
        parts += [f"## {paper['title']}", introduction(paper), items_table(paper)]
    parts += ["## Figures, theirs and ours", one_line(FIGURES)]
    for name in studies():
        parts += figures_of(name)
    parts += ["## Departures", departures()]
    return "\n\n".join(parts) + "\n"


def one_line(text: str) -> str:
    """A paragraph in one line."""
    return " ".join(text.split())


def introduction(paper: Mapping[str, Any]) -> str:
    """The source of a paper, and what it holds."""
    counted = ", ".join(
        f"{plural(kind, count)}" for kind, count in paper["counts"].items() if count
    )
    return (
        f"{paper['cite']}, [arXiv:{paper['arxiv']}](https://arxiv.org/abs/{paper['arxiv']}). It "
        f"has {counted}."
    )


def plural(kind: str, count: int) -> str:
    """A count with its word."""
    word = {"Data": "data set"}.get(kind, kind.lower())
    return f"{count} {word}{'s' if count > 1 else ''}"


def items_table(paper: Mapping[str, Any]) -> str:
    """The table of a paper's items."""
    rows = ["| item | what | where | as the paper? |", "| --- | --- | --- | --- |"]
    for title, item in paper["items"].items():
        rows.append(f"| {title} | {item['about']} | {where_it_is(item)} | {verdict(item)} |")
    return "\n".join(rows)


def where_it_is(item: Mapping[str, Any]) -> str:
    """Studies with a link to their figures, configurations and classes of an item."""
    with_figures = {where.split("/")[0] for where, paper in published().items() if paper.values}
    parts = []
    for name in listed(item, "study"):
        parts.append(
            f"study [`{name}`](#{anchor(name)})" if name in with_figures else f"study `{name}`"
        )
    parts += [f"`{name}.yaml`" for name in listed(item, "config")]
    parts += [f"`{path.rpartition(':')[2]}`" for path in listed(item, "code")]
    return ", ".join(parts) or NOTHING


def verdict(item: Mapping[str, Any]) -> str:
    """Whether an item is as in the paper, or how it departs from it."""
    parts = [f"not compared: {item['not compared']}"] if "not compared" in item else []
    parts += [f"[{name}](#{anchor(name)})" for name in listed(item, "diff")]
    parts += [item["note"]] if "note" in item else []
    runs = {where.split("/")[0] for where in RESULTS}
    parts += [f"`{name}` was not run" for name in listed(item, "study") if name not in runs]
    return "; ".join(parts) or "as the paper"


def anchor(name: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^a-z0-9_-]", "", name.lower().replace(" ", "-"))


def figures_of(name: str) -> list[str]:
    """Theirs and ours of a study, with a table for each scenario."""
    parts: list[str] = []
    said = None
    for where, paper in published().items():
        study, _, scenario = where.partition("/")
        if study != name or not paper.values:
            continue
        parts += [] if parts else [f"### {name}"]
        told = [
            f"**{scenario}**: {', '.join(paper.items)}."
            if scenario
            else f"{', '.join(paper.items)}."
        ]
        told.append(f"[Page]({RESULTS[where]['page']})." if where in RESULTS else "Not run.")
        told += (
            [] if paper.remarks == said else [one_line(remark) for remark in paper.remarks.values()]
        )
        said = paper.remarks
        parts += [" ".join(told), figures_table(where)]
    return parts


def figures_table(where: str) -> str:
    """The table of a study, or of a scenario of it."""
    paper = published()[where]
    ours = RESULTS.get(where, {})
    methods = studies()[where.split("/")[0]]["methods"]
    clients = list(dict.fromkeys(client for scores in paper.values.values() for client in scores))
    lines = [
        f"| | score | seeds | {' | '.join(map(client_label, clients))} |",
        "| --- " * (3 + len(clients)) + "|",
    ]
    for metric in metrics_of(paper):
        for method, theirs in paper.values.items():
            label = methods[method].get("label", method)
            lines += figures_row(label, metric, clients, theirs, ours.get(metric, {}).get(method))
    return "\n".join(lines)


def metrics_of(paper: Paper) -> list[str]:
    """The scores of which a paper has figures."""
    found = [
        metric
        for clients in paper.values.values()
        for scores in clients.values()
        for metric in scores
    ]
    return list(dict.fromkeys(found))


def figures_row(
    label: str,
    metric: str,
    clients: list[str],
    theirs: Mapping[str, Mapping[str, float]],
    ours: list[Any] | None,
) -> list[str]:
    """The line of a method and a score; none if the paper has no figure."""
    known = [client for client in clients if metric in theirs.get(client, {})]
    if not known:
        return []
    seeds, *values = ours or [NOTHING, *[None] * len(known)]
    mine = dict(zip(known, values, strict=True))
    cells = []
    for client in clients:
        value = mine.get(client)
        text = NOTHING if value is None else str(value)
        cells.append(f"{text} ({theirs[client][metric]:.2f})" if client in known else "")
    return [f"| {label} | {COMPARED[metric].label} | {seeds} | {' | '.join(cells)} |"]


def departures() -> str:
    """Each NOTE[DIFF] of these papers as it stands in the code."""
    lines = []
    texts = {name: (file, text) for file, text in notes() for name in matching(file, text)}
    for name in DIFFERENCES:
        file, text = texts[name]
        lines.append(f"### {name}\n\n{text.replace('``', '`')} (`{file}`)")
    return "\n\n".join(lines)


def test_the_page_of_papers_is_as_it_is_made() -> None:
    assert PAGE.read_text("utf-8") == page(), f"run python {__file__}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
