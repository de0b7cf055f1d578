"""The record of a finished job, the file ``DONE`` in its folder, which is written last.

It contains the settings that determine the job's result, each by its name, the sizes of the files
that the result consists of, the versions of packages, and the time that it took. With it, three
questions are answered: whether a job is finished, whether files were damaged, and which settings
differ from those that a folder was made with.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedlit import yaml_text
from fedlit.files import write_text
from fedlit.jobs.job import Job, is_free
from fedlit.run.config import flatten

# The version of what is written and how it is computed: runs of another format are run again.
FORMAT = 5
DONE = "DONE"
_PACKAGES = (
    "fedlit", "torch", "lightning", "torchmetrics", "scikit-learn", "numpy", "pandas", "scipy",
)  # fmt: skip


@dataclass(frozen=True)
class Output:
    """What the work of a job has left in its folder.

    Attributes:
        files: the files that the result consists of.
        details: entries of the record.
        resumed: whether the work went on from an earlier, interrupted process, so that it took
            longer than this process has seen.
        seconds: the time that the work took in other processes.
    """

    files: Iterable[Path]
    details: dict[str, Any] = field(default_factory=dict)
    resumed: bool = False
    seconds: float = 0.0


Do = Callable[[Job, float | None], Output | None]
"""Does the work of a job within a number of seconds, None for no limit. Returns None if there was
no time to begin."""


def execute(job: Job, do: Do, seconds: float | None = None) -> None:
    """Do the work of a job, and write its record.

    Args:
        job: the job.
        do: what does the work.
        seconds: the time for the job; None for no limit.
    """
    begun = time.perf_counter()
    output = do(job, seconds)
    if output is not None:
        took = None if output.resumed else time.perf_counter() - begun + output.seconds
        write_record(job, output, took)


def write_record(job: Job, output: Output, seconds: float | None = None) -> None:
    """Write the record of a job whose files are complete.

    Args:
        job: the job.
        output: what its work has left.
        seconds: the time that it took; None if it is not known.
    """
    folder = Path(job.folder)
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in output.files}
    names = {"settings": job.settings, "left_out": job.left_out, "fold": job.fold}
    record = {
        "format": FORMAT,
        "digest": job.digest,
        "method": job.method,
        "seed": job.seed,
        **{name: value for name, value in names.items() if value is not None},
        **output.details,
        "resumed": output.resumed,
        "seconds": seconds,
        "files": sizes,
        "versions": _versions(),
        "machine": _machine(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "made_of": job.made_of,
    }
    write_text(json.dumps(record, indent=2, default=str) + "\n", folder / DONE)


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record in a folder, or None if there is none of this format, or if a file of the
    result is missing or has another size.
    """
    try:
        record: dict[str, Any] = json.loads((folder / DONE).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            return None
        for name, size in record["files"].items():
            if (folder / name).stat().st_size != size:
                return None
    # The file may be missing, cut short, or of another kind.
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return record


def finished(job: Job) -> dict[str, Any] | None:
    """Return the record of a job, or None if the job has not been finished with these settings."""
    record = read_record(Path(job.folder))
    return record if record is not None and record.get("digest") == job.digest else None


def outdated(job: Job) -> list[str] | None:
    """Return the names of the settings in which a folder's result differs from a job. The list is
    empty if the result is damaged or of another format; None if there is no result or if it is the
    job's.
    """
    folder = Path(job.folder)
    if not (folder / DONE).exists() or finished(job) is not None:
        return None
    record = read_record(folder) or {}
    made_of = record.get("made_of")
    return changed(made_of, job.made_of) if isinstance(made_of, dict) else []


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings whose values differ.

    Example:
        >>> changed({"epochs": 2, "width": [8]}, {"epochs": 3, "width": (8,), "depth": 1})
        ['epochs', 'depth']
    """
    # Tuples and paths are compared as they are written.
    old, new = (json.loads(json.dumps(dict(values), default=str)) for values in (before, now))
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]


def changed_keys(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    also: tuple[str, ...] = (),
    besides: tuple[str, ...] = (),
) -> list[str]:
    """Return the keys of a configuration in which a run's folder differs from settings. Keys that
    change nothing that is computed do not count.

    Args:
        folder: the folder with ``config.yaml``.
        settings: maps each key by its dotted name to its value now.
        also: the beginnings of keys that count, though they change nothing that is computed.
        besides: further keys that do not count.
    """
    path = folder / "config.yaml"
    content = yaml_text.load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    before = dict(flatten(content))

    def counts(key: str) -> bool:
        return key not in besides and (not is_free(key) or key.startswith(also))

    keys = [key for key in {**before, **settings} if counts(key)]
    return [key for key in keys if before.get(key) != settings.get(key)]


def _versions() -> dict[str, str]:
    """Return the versions of the packages that compute the results."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def _machine() -> dict[str, Any]:
    """Describe the machine of the run."""
    lines = list[str]()
    with suppress(OSError):  # only Linux has it
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"system": platform.system(), "processor": model, "cores": os.cpu_count(), "gpus": gpus}
