"""Writes the fixes of findings into a configuration, whose comments and order stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedlit import yaml_text
from fedlit.data.findings import CHOOSE, Findings
from fedlit.data.merging import merged
from fedlit.errors import ConfigError, expect
from fedlit.files import write_text
from fedlit.run.layers import Layer, laid
from fedlit.yaml_edit import edited


def write_fixes(path: Path, findings: Findings) -> bool:
    """Write all fixes into a configuration, and the questions as comments at its end.

    Args:
        path: the configuration.
        findings: the findings about its tables.

    Returns:
        Whether the file was changed.

    Raises:
        ConfigError: the file cannot be edited.
    """
    before = path.read_text(encoding="utf-8")
    text = _without_questions(before)
    content = yaml_text.load(text)
    if findings.fix:
        expect(
            bool((content.get("data") or {}).get("source")),
            f"--fix {path}",
            "data: with its source",
            [*content],
        )
        text = edited(text, merged(content, findings.fix), f"--fix {path}")
        _check(path, _whole(text), findings.fix)
    lines = list(findings.questions())
    text = "\n".join([text.rstrip("\n"), *lines, ""])
    if text == before:
        return False
    write_text(text, path)
    return True


def _without_questions(text: str) -> str:
    """Return a text without the questions that were written before."""
    lines = list[str]()
    asks = False
    for line in text.splitlines():
        if line.startswith(CHOOSE):
            asks = True
        elif not (asks and line.startswith("# data.")):
            asks = asks and line.startswith("data.")  # an answer, after which others may stand
            lines.append(line)
    return "\n".join([*lines, ""])


def _whole(text: str) -> dict[str, Any]:
    """Return the content of a text with all keys in their places."""
    return laid([Layer(yaml_text.load(text))])


def _check(path: Path, content: dict[str, Any], fix: dict[str, Any]) -> None:
    if merged(content, fix) != content:
        raise ConfigError(
            f"--fix {path}: expected each key of data.source once, found some both in data and as "
            "a key with points, which comes before it; write the block that check prints by hand"
        )
