"""Answers of OpenML that scikit-learn recorded for its own tests and ships, put where
``fetch_openml`` caches answers.

So the real ``fetch_openml`` reads them as if it had fetched them before: nothing is replaced, and
no network is needed. Some tables are cut to their first rows; each recorded checksum is that of the
recorded file.
"""

import gzip
import json
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

API = "https://www.openml.org/api/v1/json/data"
ANSWERS = {
    r"jd-(\d+)": r"\1",
    r"jdf-(\d+)": r"features/\1",
    r"jdq-(\d+)": r"qualities/\1",
    r"jdl-dn-(\w+)-l-2-dv-(\d+)": r"list/data_name/\1/limit/2/data_version/\2",
    r"jdl-dn-(\w+)-l-2-s-act-": r"list/data_name/\1/limit/2/status/active/",
}
"""How scikit-learn calls an answer → what was asked."""


def recorded(folder: Path, data_id: int) -> Path:
    """Lay out what was recorded of a data set as a cache of ``fetch_openml``.

    Args:
        folder: the cache, ``root`` of :class:`fedlit.OpenML`; it is made, and may hold other data
            sets already.
        data_id: OpenML's id, for example 61 (iris), 561 (cpu), 40945 (Titanic), 40966
            (MiceProtein).

    Returns:
        ``folder``.
    """
    answers = (
        Path(str(resources.files("sklearn")))
        / "datasets"
        / "tests"
        / "data"
        / "openml"
        / f"id_{data_id}"
    )
    if not answers.is_dir():
        pytest.skip(
            f"this scikit-learn comes without the recorded answers of OpenML for data set {data_id}"
        )
    (table,) = answers.glob("data-v1-dl-*.arff.gz")
    urls = {table: _read(answers / f"api-v1-jd-{data_id}.json.gz")["data_set_description"]["url"]}
    for answer in answers.glob("api-v1-*"):
        for name, asked in ANSWERS.items():
            # An answer that nothing was found has the status 412, and only good answers are cached.
            if (
                match := re.fullmatch(rf"api-v1-{name}\.json\.gz", answer.name)
            ) and "error" not in _read(answer):
                urls[answer] = f"{API}/{match.expand(asked)}"
    for answer, url in urls.items():
        path = path_of(folder, url)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(answer, path)
    return folder


def path_of(folder: Path, url: str) -> Path:
    """Where ``fetch_openml`` keeps the answer from an address."""
    return folder / "openml" / "openml.org" / (urlparse(url).path.lstrip("/") + ".gz")


def described(folder: Path, data_id: int, **changes: Any) -> dict[str, Any]:
    """The description of a data set that was laid out, after changes that are written into it."""
    path = path_of(folder, f"{API}/{data_id}")
    answer = _read(path)
    answer["data_set_description"] |= changes
    path.write_bytes(gzip.compress(json.dumps(answer).encode()))
    description: dict[str, Any] = answer["data_set_description"]
    return description


def _read(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return answer
