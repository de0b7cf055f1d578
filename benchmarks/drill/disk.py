"""A site's folder that is full, or that two processes use at once."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drill.real import PATIENCE, Rows, answered, reached, twin, undisturbed, wrong_of
from institutions import Federation

ROUNDS = 8
SITE = "wine"
SIZE = "24m"


def site_disk(folder: Path, tries: int) -> Rows:
    """Fill the disk of one site in mid-federation, each time some rounds later: a small file system
    in memory, mounted for this site's processes alone. It passes where the site ends with one
    message, and its ledger is whole; and where it goes on after space was made, and all end with
    the same bits.
    """
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        return [
            (
                "a full disk at a site",
                0,
                0,
                "not run: this user may not mount anything (unshare -m)",
            )
        ]
    alone, expected = undisturbed(folder, ROUNDS)
    passed = 0
    notes = list[str]()
    for number in range(tries):
        federation = twin(alone, folder / f"{number}")
        with _small(federation) as inside:
            for name in ("coordinator", *federation.sources):
                federation.start(name)
            wrong, ended = _filled(federation, inside, 1 + number * 2)
            if not wrong:
                federation.start(SITE)
                codes = federation.wait(PATIENCE)
            shutil.copytree(inside, federation.folder / SITE, dirs_exist_ok=True)
        federation.end()
        wrong = wrong or wrong_of(federation, codes, expected, ROUNDS)
        passed += not wrong
        notes.append("; ".join(wrong) or ended)
    return [("a full disk at a site", tries, passed, "; ".join(notes)[-600:])]


@contextmanager
def _small(federation: Federation) -> Iterator[Path]:
    """Mount a small file system over the folder of a site, for its processes alone; the folder as
    seen from outside.
    """
    place = federation.folder / SITE
    script = (
        f'mount -t tmpfs -o size={SIZE} tmpfs "$1" && cp -a "$2/." "$1" && echo ready && exec '
        f"sleep {PATIENCE * 2}"
    )
    content = federation.folder / f"{SITE}.content"
    shutil.copytree(place, content)
    words = [
        "unshare",
        "-m",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        "sh",
        str(place),
        str(content),
    ]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
    enter = 'cd "$0" && exec "$@"'  # from inside: the folder that is open outside is another one
    federation.prefixes[SITE] = [
        "nsenter",
        "-m",
        "-t",
        str(holder.pid),
        "sh",
        "-c",
        enter,
        str(federation.folder),
    ]
    try:
        yield Path(f"/proc/{holder.pid}/root") / place.relative_to("/")
    finally:
        if (process := federation.processes.get(SITE)) is not None and process.poll() is None:
            process.kill()
            process.wait()
        holder.kill()
        holder.wait()


def _filled(federation: Federation, inside: Path, number: int) -> tuple[list[str], str]:
    """Fill the disk in a round and make room again once the site has ended; what is wrong, and what
    it said.
    """
    until = time.monotonic() + PATIENCE
    process = federation.processes[SITE]
    while not reached(inside, number):
        if time.monotonic() > until or process.poll() is not None:
            return [f"did not come to round {number}: {federation.said()}"], ""
        time.sleep(0.01)
    ballast = inside / "ballast"
    while process.poll() is None and time.monotonic() < until:  # what it deletes is filled, too
        with suppress(OSError), ballast.open("ab") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        time.sleep(0.01)
    code = process.poll()
    said = (federation.folder / f"{SITE}.log").read_text(encoding="utf-8")
    message = said[said.rfind("fedlit: error:") :].strip()
    print(f"--- exit status {code}\n{said[-1200:]}", flush=True)
    wrong = (
        []
        if code == 1 and "Traceback" not in said and message.count("\n") == 0
        else [f"{code}: {said[-300:]}"]
    )
    try:
        shutil.copytree(
            inside / "privacy", federation.folder / SITE / "privacy", dirs_exist_ok=True
        )
        count = len(answered(federation, SITE))
    except Exception as error:
        return [*wrong, f"the ledger cannot be read: {error}"], ""
    ballast.unlink()
    return wrong, f"full in round {number + 1}, {count} answers in the ledger: {message}"


def two_joins(folder: Path, tries: int) -> Rows:
    """Join twice from one folder, at once and again in mid-federation. It passes where one of the
    two is refused with one message, and the other ends with the same bits.
    """
    alone, expected = undisturbed(folder, ROUNDS)
    passed = 0
    notes = list[str]()
    for number in range(tries):
        federation = twin(alone, folder / f"{number}")
        first = _both(federation)
        for name in ("coordinator", *(site for site in federation.sources if site != SITE)):
            federation.start(name)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and not reached(federation.folder / SITE, 1):
            time.sleep(0.1)
        second = _both(federation)
        codes = federation.wait(PATIENCE)
        wrong = [*first, *second] or wrong_of(federation, codes, expected, ROUNDS)
        passed += not wrong
        notes.append(
            "; ".join(wrong) or "the second was refused, the first ended with the same bits"
        )
    return [("two joins in one folder", tries, passed, notes[-1])]


def _both(federation: Federation) -> list[str]:
    """Start the site until two of it were there, and wait until one has ended; what is wrong with
    how it did.
    """
    log = federation.folder / f"{SITE}.log"
    running = [federation.processes[SITE]] if SITE in federation.processes else []
    begun = log.stat().st_size if log.exists() else 0
    while len(running) < 2:
        federation.start(SITE)
        running.append(federation.processes[SITE])
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and all(process.poll() is None for process in running):
        time.sleep(0.1)
    (left,) = [process for process in running if process.poll() is None] or [running[0]]
    (over,) = [process for process in running if process is not left]
    federation.processes[SITE] = left
    said = log.read_text(encoding="utf-8")[begun:]
    print(f"--- exit status {over.poll()}\n{said[-1200:]}", flush=True)
    refused = (
        said.count("fedlit: error:") == 1 and "no other site" in said and "Traceback" not in said
    )
    return [] if refused and over.poll() == 2 else [f"exit status {over.poll()}: {said[-300:]}"]
