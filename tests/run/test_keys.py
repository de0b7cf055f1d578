"""``fedlit fit --help``, as the command prints it, and the list and the page of all keys, as the
parser has them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from elsewhere import light
from jsonargparse import Namespace

from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.run.keys import _OF_RUNS, GROUPS, KEYS, SHOWN
from fedlit.run.layers import DEFAULTS
from fedlit.run.load import _parser
from fedlit.run.trainer import check_options

MARKUP = re.compile(r"`|:(class|func|mod|meth|attr|data):")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "keys.md"
LIST = ROOT / "fedlit" / "run" / "keys.json"
FIRST = "## The run\n"
WORDS: dict[Any, str] = {
    str: "text", int: "integer", float: "number", bool: "true or false", list: "list", dict: "mapping", Any: "anything",
}  # fmt: skip


def generated() -> dict[str, list[str]]:
    """Key → type, default and meaning; ``python tests/run/test_keys.py`` writes them."""
    found = {}
    for action in _parser()._actions:
        typed = getattr(action, "_typehint", None)
        if typed is not None and action.dest.count(".") < 2:
            default = (
                "required"
                if action.required
                else default_of(DEFAULTS.values.get(action.dest, action.default))
            )
            about = re.sub(
                r":(?:\w+:)?\w+:`(?:~(?:[\w.]+\.)?)?([^`<]+?)(?:\s*<[^>]*>)?`",
                r"\1",
                action.help or "",
            )
            found[action.dest] = [type_of(typed), default, " ".join(about.split())]
    return found


def type_of(hint: Any) -> str:
    """A type in the terms of YAML."""
    outer = get_origin(hint)
    inner = get_args(hint)
    if hint in (None, NoneType):
        return "null"
    if outer in (Literal, Union, UnionType):
        return " or ".join(dict.fromkeys(choices(hint)))
    if outer is Callable:
        return "class"
    if inner:
        return (
            f"mapping to {type_of(inner[-1])}"
            if outer in (dict, Mapping)
            else f"list of {type_of(inner[0])}"
        )
    return WORDS.get(hint, f"`{hint.__name__}`" if isinstance(hint, type) else "anything")


def choices(hint: Any) -> Iterator[str]:
    """Each value or type of a choice; the same word may be there twice, as of 64 and '64'."""
    for own in get_args(hint):
        if get_origin(hint) is Literal:
            yield f"`{own}`"
        elif get_origin(own) in (Literal, Union, UnionType):
            yield from choices(own)
        else:
            yield type_of(own)


def default_of(value: Any) -> str:
    value = (
        value["class_path"]
        if isinstance(value, Mapping | Namespace) and "class_path" in value
        else value
    )
    return f"`{yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix('...' + chr(10)).strip()}`"


def page() -> str:
    """A table for each group; of the keys of Lightning's Trainer, those that ``fedlit fit --help``
    shows."""
    rows: dict[str, list[str]] = {}
    for key, (kind, default, about) in KEYS.items():
        group = key.rpartition(".")[0]
        if group != "trainer" or key in SHOWN:
            meaning = re.split(r"(?<=\.)\s+(?=[A-Z`])", about)[0].rstrip(".")
            line = " | ".join(
                [f"`{key}`", kind, default, meaning[:1].upper() + meaning[1:]]
            ).replace("``", "`")
            rows.setdefault(group or "The run", []).append(f"| {line} |")
    head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    return (
        "\n\n".join("\n".join([f"## {group}", "", *head, *own]) for group, own in rows.items())
        + "\n"
    )


def test_the_list_and_the_page_have_the_keys_of_the_parser() -> None:
    assert generated() == KEYS and list(KEYS) == list(generated()), f"run python {__file__}"
    assert PAGE.read_text(encoding="utf-8").endswith(page()), f"run python {__file__}"


def keys_of(text: str) -> set[str]:
    assert max(map(len, text.splitlines())) <= 80 and not MARKUP.search(text)
    return set(re.findall(r"^  --([\w.]+)", text, re.MULTILINE)) - {"help"}


def test_keys_and_groups_are_explained_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    asked: dict[tuple[str, ...], set[str]] = {
        ("describe", "--help=exchange"): {key for key in KEYS if key.startswith("exchange.")},
        ("fit", "--config", "quickstart", "--help", "data.steps"): {"data.steps"},
        ("describe", "-h"): set(SHOWN),
        ("fit", "--help", "trainer.limit"): {"trainer.limit_train_batches"},
        ("predict", "-h"): set(_OF_RUNS),
    }
    told = light([*asked, ("fit", "--help", "exchagne")], tmp_path)
    for expected, (status, out, _) in zip(asked.values(), told, strict=False):
        assert status == 0 and keys_of(out) == expected
    assert told[-1][0] == 2 and "Did you mean 'exchange'?" in told[-1][2]
    assert len(KEYS) > 80 and {
        "data",
        "model",
        "exchange",
        "checkpoint",
        "board",
        "score",
        "trainer",
    } == set(GROUPS)


def test_the_help_lists_a_key_unless_it_is_always_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = ("fit", "validate", "test", "predict", "describe")
    told = light([(command, "--help", "all") for command in commands], tmp_path)
    listed = {command: keys_of(out) for command, (_, out, _) in zip(commands, told, strict=True)}
    formats = {"predict", "describe"}  # docs/keys.md
    for command, keys in listed.items():
        assert ("format" in keys) == (command in formats)
        assert ("data.predict" in keys) == (command in formats)
    for key in KEYS:
        group, _, option = key.partition(".")
        if group != "trainer":
            continue
        try:
            check_options({option: "another"})
        except ConfigError:
            assert all(key not in keys for keys in listed.values()), key
        else:
            assert all(key in keys for keys in listed.values()), key


@pytest.mark.parametrize(
    "given", ["exchange.every=day", "trainer.max_epochs=day", "data.bins=many", "data.pool=perhaps"]
)
def test_a_refused_value_is_told_the_type_that_the_page_shows(
    given: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = given.partition("=")[0]
    assert main(["describe", "--config", "quickstart", f"--{given}"]) == 2
    page = PAGE.read_text(encoding="utf-8").replace("`", "")
    kind = page.partition(f"\n| {key} | ")[2].partition(" | ")[0]
    assert kind and f"expected {kind}, found" in capsys.readouterr().err


if __name__ == "__main__":
    KEYS.clear()
    KEYS.update(generated())
    LIST.write_text(json.dumps(KEYS, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    head = PAGE.read_text(encoding="utf-8").partition(FIRST)[0]
    PAGE.write_text(head + page(), encoding="utf-8")
