"""Answers of OpenML that scikit-learn recorded for its own tests and ships, put where ``fetch_openml`` caches answers.

So the real ``fetch_openml`` reads them as if it had fetched them before: nothing is replaced, and no network is needed.
Some tables are cut to their first rows; each recorded checksum is that of the recorded file.
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


def recorded(folder: Path, data_id: int) -> Path:
    """Lay out what was recorded of a data set as a cache of ``fetch_openml``.

    Args:
        folder: the cache, ``root`` of :class:`fedlit.OpenML`; it is made, and may hold other data sets already.
        data_id: OpenML's id, for example 61 (iris), 561 (cpu), 40945 (Titanic), 40966 (MiceProtein).

    Returns:
        ``folder``.
    """
    answers = Path(str(resources.files("sklearn"))) / "datasets" / "tests" / "data" / "openml" / f"id_{data_id}"
    if not answers.is_dir():
        pytest.skip(f"this scikit-learn comes without the recorded answers of OpenML for data set {data_id}")
    description = _read(answers / f"api-v1-jd-{data_id}.json.gz")["data_set_description"]
    api = "https://www.openml.org/api/v1/json/data"
    urls = {
        f"api-v1-jd-{data_id}.json.gz": f"{api}/{data_id}",
        f"api-v1-jdf-{data_id}.json.gz": f"{api}/features/{data_id}",
        f"api-v1-jdq-{data_id}.json.gz": f"{api}/qualities/{data_id}",
    }
    name, version = description["name"].lower(), description["version"]
    by_name = f"{api}/list/data_name/{name}/limit/2"
    start = f"api-v1-jdl-dn-{re.sub(r'[^a-z0-9_]', '-', name)}-l-2"
    lists = {
        f"{start}-dv-{version}.json.gz": f"{by_name}/data_version/{version}",
        f"{start}-s-act-.json.gz": f"{by_name}/status/active/",
    }
    for file, url in lists.items():
        # An answer that nothing was found has the status 412, and only good answers are cached.
        if (answers / file).is_file() and "data" in _read(answers / file):
            urls[file] = url
    (table,) = answers.glob("data-v1-dl-*.arff.gz")
    urls[table.name] = description["url"]
    for file, url in urls.items():
        if (answers / file).is_file():
            path = path_of(folder, url)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(answers / file, path)
    return folder


def path_of(folder: Path, url: str) -> Path:
    """Where ``fetch_openml`` keeps the answer from an address."""
    return folder / "openml" / "openml.org" / (urlparse(url).path.lstrip("/") + ".gz")


def described(folder: Path, data_id: int, **changes: Any) -> dict[str, Any]:
    """The description of a data set that was laid out, after changes that are written into it."""
    path = path_of(folder, f"https://www.openml.org/api/v1/json/data/{data_id}")
    answer = _read(path)
    answer["data_set_description"] |= changes
    path.write_bytes(gzip.compress(json.dumps(answer).encode()))
    description: dict[str, Any] = answer["data_set_description"]
    return description


def _read(path: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return answer
