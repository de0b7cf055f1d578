"""Federations across institutions, with every process real: a coordinator and its sites on this
machine, TLS on.

    python benchmarks/institutions.py demo            # what `make sites` runs
    python benchmarks/institutions.py equal           # the bits of one process, method by method
    python benchmarks/institutions.py kills --times 50

Each site has a folder of its own, and its table in it. The exit status is 0 only if all is as it
should be.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml

import fedlit
from fedlit.data.files import find
from fedlit.errors import DataError
from fedlit.run.config import find_config, read_yaml
from fedlit.train import checkpoint_file

HEART = ("cleveland", "hungarian", "va")
TABLES = ("cleveland", "faisalabad", "sa")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


class Federation:
    """A coordinator and its sites, in processes of their own.

    Args:
        folder: of all of them; what was there goes.
        settings: the federation's, without a source.
        sources: site → ``data.source``.
        coordinator: settings of ``coordinator.yaml`` beside what ``init`` writes.

    Attributes:
        prefixes: the words before the command of a site, by name.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        sources: Mapping[str, Any],
        **coordinator: Any,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.sources = sources
        self.processes = dict[str, subprocess.Popen[bytes]]()
        self.prefixes = dict[str, list[str]]()
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        port = str(free_port())
        self.fedlit(
            "coordinate", "init", "coordinator", "--sites", ",".join(sources), "--port", port
        )
        own = folder / "coordinator"
        (own / "federation.yaml").write_text(
            yaml.safe_dump(dict(settings), sort_keys=False), encoding="utf-8"
        )
        written = read_yaml(own / "coordinator.yaml") | {"listen": "127.0.0.1"} | coordinator
        (own / "coordinator.yaml").write_text(
            yaml.safe_dump(written, sort_keys=False), encoding="utf-8"
        )
        for site, source in sources.items():
            shutil.copytree(own / "invitations" / site, folder / site)
            shutil.copy(own / "federation.yaml", folder / site)
            self.fedlit("site", "keys", site)
            mine = read_yaml(folder / site / "site.yaml") | {"data": {"source": source}}
            (folder / site / "site.yaml").write_text(
                yaml.safe_dump(mine, sort_keys=False), encoding="utf-8"
            )
            _own_data(folder / site / "data", site, source)
            self.fedlit("coordinate", "add", "coordinator", site, f"{site}/{site}.pub")
        self.hashes = {site: [self.hash(site)] for site in sources}

    def fedlit(self, *words: str) -> str:
        """A command that ends by itself; its output."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "fedlit", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(
                f"fedlit {' '.join(words)}: exit status "
                f"{done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def hash(self, site: str) -> str:
        """Of what would leave a site."""
        told = self.fedlit("site", "check", "--config", f"{site}/site.yaml")
        found = re.search(r"Hash of all this: ([0-9a-f]+)", told)
        assert found is not None, told
        return found[1]

    def start(self, name: str) -> None:
        """Start a site, or the ``coordinator``; again, where it was killed."""
        accepted = [word for own in self.hashes.get(name, ()) for word in ("--accept", own)]
        of_site = ["site", "join", "--config", f"{name}/site.yaml", *accepted]
        words = ["coordinate", "start", "coordinator"] if name == "coordinator" else of_site
        data = self.folder / name / "data"
        environment = {**self.environment, **({"FEDLIT_DATA": str(data)} if data.is_dir() else {})}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.prefixes.get(name, ()), sys.executable, "-P", "-m", "fedlit", *words],
                cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def run(self, seconds: float = 900.0) -> dict[str, int | None]:
        """Start all and wait; exit status by name, None of one that had to be ended."""
        for name in ("coordinator", *self.sources):
            self.start(name)
        return self.wait(seconds)

    def wait(self, seconds: float) -> dict[str, int | None]:
        """Until all have ended. Where tensors depend on what others have, a site asks again: that
        is agreed to, too.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            codes = {name: process.poll() for name, process in self.processes.items()}
            for name in [name for name in self.sources if codes[name] == 2]:
                asked = re.findall(
                    r"--accept ([0-9a-f]{64})", (self.folder / f"{name}.log").read_text()
                )
                if asked and asked[-1] not in self.hashes[name]:
                    self.hashes[name].append(asked[-1])
                    self.start(name)
                    codes[name] = None
            if all(code is not None for code in codes.values()):
                break
            time.sleep(0.2)
        self.end()
        return codes

    def end(self) -> None:
        """End what still runs."""
        for process in self.processes.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()

    def weights(self, site: str) -> dict[str, torch.Tensor]:
        """What a site ended with."""
        newest = max((self.folder / site).rglob("last.ckpt"), key=os.path.getmtime)
        prefix = f"clients.{site}."
        state = checkpoint_file.load(newest)["state_dict"]
        return {
            key.removeprefix(prefix): value
            for key, value in state.items()
            if key.startswith(prefix)
        }

    def differing(
        self, expected: Mapping[str, Mapping[str, torch.Tensor]], tolerance: float = 0.0
    ) -> list[str]:
        """Tensors that are not, bit for bit or to a tolerance, what they should be, site by
        site.
        """
        wrong = []
        for site in self.sources:
            mine = self.weights(site)
            for key, value in expected[site].items():
                away = (
                    float((value.double() - mine[key].double()).abs().max())
                    if value.numel()
                    else 0.0
                )
                if not torch.equal(value, mine[key]) and not 0 < away <= tolerance:
                    wrong.append(f"{site}.{key} by {away:.1e}")
        return wrong

    def logs(self) -> list[Path]:
        """Of all processes."""
        return sorted(
            [
                *self.folder.glob("*.log"),
                *self.folder.glob("*/*.log"),
                *self.folder.glob("*/state/*.log"),
            ]
        )

    def said(self) -> str:
        """The last lines of each log."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-12:])
            for path in self.logs()
        )

    def report(self) -> dict[str, Any]:
        """What the coordinator wrote."""
        found: dict[str, Any] = json.loads(
            (self.folder / "coordinator" / "state" / "result.json").read_text()
        )
        return found


def _own_data(folder: Path, site: str, source: Mapping[str, Any]) -> None:
    """A site's own file and no other, where its source reads files."""
    if source["class_path"] != "fedlit.Heart":
        return
    for file in fedlit.Heart.known_files:
        found = find(file)
        if Path(file.path).stem == site and found is not None:
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, folder / file.path)


def deep(settings: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with others over them."""
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(settings.get(key), dict):
            deep(settings[key], value)
        else:
            settings[key] = value
    return settings


def prepared(
    config: str, sites: Sequence[str], changes: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(settings, source by site, settings of one process) of a configuration that came with
    fedlit.
    """
    # without the marks of quoted text
    settings = json.loads(json.dumps(read_yaml(find_config(config))))
    source = settings["data"].pop("source")
    source = {"class_path": source} if isinstance(source, str) else source
    arguments = dict(source.get("init_args") or {})
    deep(settings, {"model": {"engine": "plain", "threads": 1}, **changes})
    sources = {site: {**source, "init_args": {**arguments, "clients": [site]}} for site in sites}
    whole = deep(
        json.loads(json.dumps(settings)),
        {"data": {"source": {**source, "init_args": {**arguments, "clients": list(sites)}}}},
    )
    return settings, sources, whole


def in_one_process(folder: Path, whole: Mapping[str, Any]) -> dict[str, dict[str, torch.Tensor]]:
    """What each client of the same federation ends with in this process."""
    path = folder / "whole.yaml"
    path.write_text(yaml.safe_dump(dict(whole), sort_keys=False), encoding="utf-8")
    torch.set_num_threads(1)
    run = fedlit.load(str(path), f"--trainer.default_root_dir={folder / 'whole'}")
    run.fit(quiet=True)
    return {name: client.state_dict() for name, client in run.loop.federation.items()}


ROWS: dict[str, tuple[str, Sequence[str], dict[str, Any]]] = {
    "quickstart": ("quickstart", ("north", "south", "west"), {}),
    "Global Layers": ("heart_gl", TABLES, {}),
    "CHFL": ("heart_chfl", HEART, {"exchange": {"every": "epoch"}, "trainer": {"check_val_every_n_epoch": 1}}),
    "IFCA": (
        "heart_fedavg", HEART,
        {"exchange": {"rule": {"class_path": "fedlit.IFCA", "init_args": {"clusters": 2}}}},
    ),
    "forest": (
        "heart_sites_forest", HEART,
        {"exchange": {"rule": {"init_args": {"trees": 3}}}, "trainer": {"max_epochs": 2}},
    ),
    "masked sums": (
        "quickstart", ("north", "south", "west"),
        {
            "federation": {"id": "0123456789abcdef" * 2, "sites": ["north", "south", "west"]},
            "privacy": {"masked": {"norm": 100.0}},
            "model": {"optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.01, "weight_decay": 0.0}}},
        },
    ),
}  # fmt: skip


def demo(folder: Path) -> int:
    """Three sites that exist, ten rounds; who joins, what travels, what each has."""
    try:
        fedlit.Heart(clients=list(TABLES)).tables(0)
        config = "heart_gl"
        sites = TABLES
    except DataError:
        config = "quickstart"
        sites = ("north", "south", "west")
        print(
            "The Heart tables are not here (fedlit data fetch heart): three others, which need no "
            "download"
        )
    changes = {"model": {"engine": "auto"}, "trainer": {"max_epochs": 10}}
    settings, sources, _ = prepared(config, sites, changes)
    print(
        "Three sites, each with a folder and a table of its own, and a coordinator without any ...",
        flush=True,
    )
    federation = Federation(folder, settings, sources)
    begun = time.monotonic()
    codes = federation.run()
    print(federation.said())
    print("exit status:", codes)
    if any(codes.values()):
        return 1
    told = federation.report()
    print(
        f"{told['rounds']} rounds in {time.monotonic() - begun:.0f} s, {told['bytes']:,} bytes. "
        f"Look at {folder}"
    )
    return 0


def equal(folder: Path, only: Sequence[str], rounds: int, facts_from: Sequence[int]) -> int:
    """The table of equality, with so many rows behind each value that is sent before training."""
    failed = 0
    for name, (config, sites, changes) in ROWS.items():
        for rows in facts_from if not only or name in only else ():
            limit = {
                "trainer": {"max_epochs": changes.get("trainer", {}).get("max_epochs", rounds)}
            }
            limit["data"] = {"facts_from": rows}
            settings, sources, whole = prepared(
                config, sites, deep(json.loads(json.dumps(changes)), limit)
            )
            federation = Federation(folder / f"{name.replace(' ', '_')}_{rows}", settings, sources)
            failed += _row(f"{name}, facts from {rows}", federation, whole)
    return int(failed > 0)


def _row(name: str, federation: Federation, whole: dict[str, Any]) -> bool:
    """Run a federation and the same in one process, and print whether they are equal; True if
    not.
    """
    begun = time.monotonic()
    codes = federation.run()
    seconds = time.monotonic() - begun
    tolerance = 2e-6 if whole.pop("privacy", None) else 0.0
    whole.pop("federation", None)
    if any(code != 0 for code in codes.values()):
        wrong = f"exit status {codes}\n{federation.said()}"
    else:
        differ = federation.differing(in_one_process(federation.folder, whole), tolerance)
        wrong = f"{len(differ)} tensors differ: {differ[:3]}" if differ else ""
    took = (
        ""
        if wrong
        else f"{federation.report()['rounds']:>3} rounds  {federation.report()['bytes']:>13,} bytes"
    )
    same = "within 2e-6" if tolerance else "same bits"
    print(f"{name:<28} {wrong or same}  {took}  {seconds:5.0f} s", flush=True)
    return bool(wrong)


def children(process: int) -> dict[str, list[int]]:
    """Kind → processes of fedlit below one."""
    found: dict[str, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == process and b"fedlit.institutions.child" in words:
                module = words[words.index(b"fedlit.institutions.child") + 2].decode()
                found.setdefault(module, []).append(int(path.name))
    return found


def kills(folder: Path, times: int, seed: int, federations: int = 2) -> int:
    """Kill at random moments from the first 100 ms on, start again, compare the bits; count what
    was left behind.
    """
    drawn = random.Random(seed)
    settings, sources, whole = prepared(
        "heart_gl", TABLES, {"trainer": {"max_epochs": 60}, "checkpoint": {"seconds": 0, "best": 0}}
    )
    alone = dict[str, dict[str, torch.Tensor]]()
    killed: dict[str, int] = {}
    left = times
    number = 0
    failed = 0
    while left > 0:
        federation = Federation(folder / f"{number}", settings, sources)
        for name in ("coordinator", *sources):
            federation.start(name)
        quota = min(left, math.ceil(times / federations))
        wrong = list[str]()
        while quota > 0 and not wrong:
            time.sleep(0.1 * 150 ** drawn.random())
            codes = {name: process.poll() for name, process in federation.processes.items()}
            wrong += [
                f"{name} ended with exit status {code}" for name, code in codes.items() if code
            ]
            if all(code is not None for code in codes.values()):
                break
            done = kill_one(federation, drawn, wrong)
            quota = quota - bool(done)
            left = left - bool(done)
            killed |= {done: killed.get(done, 0) + 1} if done else {}
        codes = federation.wait(900)
        time.sleep(2)
        orphans = processes(federation.folder)
        wrong += [f"orphans: {orphans}"] if orphans else []
        wrong += [
            f"{log.name}: a traceback"
            for log in federation.logs()
            if "Traceback" in log.read_text()
        ]
        if any(code != 0 for code in codes.values()):
            wrong.append(f"exit status {codes}\n{federation.said()}")
        else:
            alone = alone or in_one_process(federation.folder, whole)
            wrong += federation.differing(alone)[:3]
        failed += bool(wrong)
        told = ", ".join(wrong) or "same bits, no orphans, each restart succeeded"
        print(f"federation {number + 1}: {told}; {killed}", flush=True)
        number += 1
    return int(failed > 0)


def kill_one(federation: Federation, drawn: random.Random, wrong: list[str]) -> str:
    """Kill a process, and start it again where nobody else does; what was killed, empty if it was
    not there.
    """
    what = drawn.choice(["site", "coordinator", "coordinator", "speaker", "superlink"])
    site = drawn.choice(list(federation.sources))
    owner = "coordinator" if what in ("coordinator", "superlink") else site
    process = federation.processes[owner]
    below = children(process.pid)
    victim = process.pid if what in ("site", "coordinator") else next(iter(below.get(what, [])), 0)
    if process.poll() is not None or not victim:
        return ""
    os.kill(victim, signal.SIGKILL)
    if what in ("site", "coordinator"):
        process.wait()
        time.sleep(drawn.choice([0, 0, 1, 3]) * drawn.random())
        federation.start(owner)
        until = time.monotonic() + 15
        while left := [kind for kind, pids in below.items() for pid in pids if _lives(pid)]:
            if time.monotonic() > until:
                wrong.append(f"{', '.join(left)} lived on 15 s behind {owner}")
                break
            time.sleep(0.05)
    return what


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes(folder: Path) -> list[str]:
    """Commands of the processes of a federation; they work in its folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            where = Path(os.readlink(path / "cwd"))
            if (
                "fedlit.institutions" in words
                and where.is_relative_to(folder.resolve())
                and _lives(int(path.name))
            ):
                found.append(words)
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("demo", "equal", "kills"))
    parser.add_argument(
        "--folder", type=Path, help="where to work (default: a new temporary folder)"
    )
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--facts-from",
        type=int,
        nargs="+",
        default=[1, 5],
        help="values of data.facts_from (equal)",
    )
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.folder = asked.folder or Path(tempfile.mkdtemp(prefix="fedlit-sites-"))
    if asked.what == "demo":
        return demo(asked.folder / "demo")
    if asked.what == "equal":
        return equal(asked.folder / "equal", asked.only, asked.rounds, asked.facts_from)
    return kills(asked.folder / "kills", asked.times, asked.seed)


if __name__ == "__main__":
    sys.exit(main())
