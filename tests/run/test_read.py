"""Settings of a YAML file become a dataclass: what is refused, and which key a refusal names."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from fedlit.errors import ConfigError, DataError, expect
from fedlit.run.read import below, keys_of, placed, read


@dataclass(frozen=True)
class Part:
    config: Path
    pace: Literal["step", "epoch"] = "step"
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    rows: int = 1
    share: float | None = None

    def __post_init__(self) -> None:
        expect(self.rows > 0, "rows", "at least 1", self.rows)


@dataclass(frozen=True)
class Settings:
    parts: dict[str, Part]
    limits: Limits = field(default_factory=Limits)
    names: tuple[str, ...] = ()
    weights: str | dict[str, float] = "equal"
    folder: str = ""


WHOLE = {
    "parts": {"a": {"config": "a.yaml", "set": {"model.rank": 3}}, "b": {"config": "b.yaml"}},
    "limits": {"share": 1},
    "names": ["x"],
    "weights": {"a": 2},
}


def test_a_file_becomes_nested_dataclasses_with_types(tmp_path: Path) -> None:
    file = tmp_path / "whole.yaml"
    file.write_text("parts: {a: {config: a.yaml, pace: epoch}}\nnames: ['1', no]\nweights:\n")
    assert read(Settings, file) == Settings({"a": Part(Path("a.yaml"), "epoch")}, names=("1", "no"))
    whole = read(Settings, WHOLE)
    assert whole.parts["a"].set == {"model.rank": 3} and whole.limits == Limits(1, 1.0)
    assert whole.weights == {"a": 2.0} and type(whole.limits.share) is float
    with pytest.raises(ConfigError, match=r"^.*whole\.yaml: limits\.rows: .* found 0"):
        read(Settings, file, {"limits.rows": 0})


def test_overrides_and_given_fields_replace_what_is_written() -> None:
    changed = read(Settings, WHOLE, {"parts.b.pace": "epoch", "limits": None}, folder="here")
    assert changed.parts["b"].pace == "epoch" and changed.limits == Limits()
    assert changed.folder == "here" and WHOLE["limits"] == {"share": 1}
    with pytest.raises(ConfigError, match="found 'folder'"):
        read(Settings, {**WHOLE, "folder": "x"}, folder="here")


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"part": {}}, "expected some of parts, .*", "Did you mean 'parts'"),
    ({"parts": None}, "parts: expected mapping to keys and values such as config", "nothing"),
    ({"parts": {"a": None}}, "parts.a: ", "None"),
    ({"parts": {"a": {}}}, "parts.a.config: expected a path", "nothing"),
    ({"parts": {"a": {"config": 3}}}, "parts.a.config: expected a path", "3"),
    ({"parts": {"a": {"config": "x", "sett": {}}}}, "parts.a: ", "Did you mean 'set'"),
    ({"parts": {"a": {"config": "x", "pace": "epcoh"}}}, "parts.a.pace: ", "'epoch'"),
    ({"limits": {"rows": 2.5}}, "limits.rows: expected integer", "2.5"),
    ({"limits": {"rows": True}}, "limits.rows: expected integer", "True"),
    ({"limits": {"share": "half"}}, "limits.share: expected number or null", "'half'"),
    ({"limits": {"rows": -1}}, "limits.rows: expected at least 1", "-1"),
    ({"names": "x"}, "names: expected list of text", r"Did you mean \[x\]"),
    ({"names": ["x", 3]}, "names: expected text", "3"),
    ({"weights": {"a": "b"}}, "weights.a: expected number", "'b'"),
    ({"weights": [1]}, "weights: expected text or mapping to number", r"\[1\]"),
]


@pytest.mark.parametrize(("change", "key", "word"), WRONG)
def test_a_wrong_value_is_refused_with_its_whole_key(
    change: dict[str, Any], key: str, word: str
) -> None:
    with pytest.raises(ConfigError, match=f"^here: {key}.* found .*{word}"):
        read(Settings, {**WHOLE, **change}, prefix="here")


def test_a_refusal_imports_no_class_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    spec = {"class_path": "evil.Source", "init_args": {"code": "1"}}
    part = {"config": "a.yaml", "set": {"data.source": spec}}
    assert read(Settings, {"parts": {"a": part}}).parts["a"].set == {"data.source": spec}
    for value in ("evil.Source", spec):
        with pytest.raises(ConfigError, match="limits"):
            read(Settings, {**WHOLE, "limits": value})


def test_a_placed_value_leaves_the_tree_as_it_was() -> None:
    tree = {"a": {"b": 1}, "c": 2}
    assert placed(tree, ["a", "d", "e"], 3) == {"a": {"b": 1, "d": {"e": 3}}, "c": 2}
    assert tree == {"a": {"b": 1}, "c": 2}


def test_keys_of_groups_are_dotted_and_errors_keep_their_class() -> None:
    assert keys_of(Settings) == [
        "parts", "limits.rows", "limits.share", "names", "weights", "folder",
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"^a\.b: expected x"), below("a"):
        raise DataError("b: expected x")
