"""Random kills: every federation ends with the bits of one that was left alone, and nothing of it
lives on.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from drill.federation import Job, differing, end_of, import_all, jobs
from drill.forks import alive, ended, kill, start, told

Rows = list[tuple[str, int, int, str]]
PATIENCE = 300
SHARES = {"one": 0.35, "early": 0.25, "ranks": 0.2, "sites": 0.15}
"""Of all kills; the rest are of real coordinators, sites and their Flower processes, where there
are enough."""


def kills(folder: Path, tries: int) -> Rows:
    """See the module; ``tries`` is the number of kills."""
    import_all()
    drawn = random.Random(0)
    known = jobs()
    rows = list[tuple[str, int, int, str]]()
    real = tries // 20
    counts = {
        name: round((tries - real) * share / sum(SHARES.values())) for name, share in SHARES.items()
    }
    counts["one"] += tries - real - sum(counts.values())
    for transport, wanted in counts.items():
        done = passed = federations = 0
        wrong = list[str]()
        wholes = dict[Job, tuple[dict[str, object], float]]()
        order = known[transport]
        drawn.shuffle(order)
        while done < wanted:
            job = order[federations % len(order)]
            place = folder / f"{transport}-{federations}"
            federations += 1
            if job not in wholes:
                wholes[job] = _whole(job, place / "whole")
            killed, found = _killed(
                job, place / "killed", min(wanted - done, drawn.randint(2, 6)), drawn, *wholes[job]
            )
            done = done + killed
            passed = passed + (0 if found else killed)
            if found:
                wrong.append(f"{job.name}: {found}")
            else:
                shutil.rmtree(place, ignore_errors=True)
        note = f"{federations} federations; " + (
            "; ".join(wrong[:3]) or "all with the same bits, no orphans"
        )
        rows.append((f"kills, {transport}", done, passed, note))
        print(f"kills, {transport}: {passed} of {done}, {note}", file=sys.stderr, flush=True)
    return [*rows, _institutions(folder / "institutions", real)] if real else rows


def _whole(job: Job, place: Path) -> tuple[dict[str, object], float]:
    """What a federation ends with that nobody kills, and how long it takes."""
    place.mkdir(parents=True)
    for work, environment in job.alone(place):
        code = ended(start(work, place / "log", **environment), PATIENCE)
        if code != 0:
            raise SystemExit(
                f"{job.name}: expected it to be trained, found exit status {code}: "
                f"{told(place / 'log')}"
            )
    begun = time.monotonic()
    again = place / "again"
    again.mkdir()
    running = [start(work, again / "log", **environment) for work, environment in job.works(again)]
    codes = [ended(process, PATIENCE) for process in running]
    if any(codes):
        raise SystemExit(f"{job.name}: exit status {codes}: {told(again / 'log')}")
    if wrong := differing(end_of(place), end_of(again), stacked=job.engine == "stacked"):
        raise SystemExit(f"{job.name}: expected the bits of one process, found other {wrong}")
    return end_of(place), time.monotonic() - begun


def _killed(
    job: Job,
    place: Path,
    times: int,
    drawn: random.Random,
    whole: dict[str, object],
    seconds: float,
) -> tuple[int, str]:
    """How often it was killed, and what was wrong."""
    place.mkdir(parents=True)
    done = 0
    while True:
        groups = [
            start(work, place / f"log-{number}", **own)
            for number, (work, own) in enumerate(job.works(place))
        ]
        victim = drawn.randrange(len(groups))
        code = ended(groups[victim], drawn.uniform(0, seconds) if done < times else PATIENCE)
        if code is None and done == times:
            _end(groups)
            return done, f"goes on for {PATIENCE} s"
        if code is None:
            kill(groups[victim])
            done += 1
        codes = [ended(group, 90) for group in groups]
        if None in codes or any(map(alive, groups)):
            _end(groups)
            return (
                done,
                f"process {codes.index(None) if None in codes else '?'} lives on 90 s behind the "
                "kill",
            )
        if code is None:
            continue
        if any(codes) or code:
            return done, f"exit status {code}: {told(place / f'log-{victim}')}"
        return done, differing(whole, end_of(place), stacked=job.engine == "stacked")


def _end(groups: list[int]) -> None:
    for group in groups:
        kill(group)
        ended(group, 5)


def _institutions(folder: Path, times: int) -> tuple[str, int, int, str]:
    """Coordinator, sites, and Flower's processes in between, all of them real."""
    command = [
        sys.executable,
        str(Path(__file__).parents[1] / "institutions.py"),
        "kills",
        "--times",
        str(times),
    ]
    done = subprocess.run(
        [*command, "--folder", str(folder)], capture_output=True, text=True, check=False
    )
    if "$FEDLIT_DATA" in done.stdout + done.stderr:
        return (
            "kills, institutions",
            0,
            0,
            "not run: the heart tables are not there; set FEDLIT_DATA",
        )
    lines = re.findall(r"^federation \d+: .*$", done.stdout, re.MULTILINE)
    note = lines[-1] if lines else (done.stdout + done.stderr)[-300:]
    return (
        "kills, institutions",
        times,
        times if done.returncode == 0 else 0,
        f"{len(lines)} federations; {note}",
    )
