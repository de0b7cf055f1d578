"""Seconds and bytes a round across institutions: fedlit, and an ordinary app of Flower's, on one model and its tables.

    python benchmarks/flower.py [--config heart_gl] [--rounds 5] [--folder FOLDER]

Both have TLS, node authentication and a process a site; all is on this machine. The app (``flower_app/``) is a plain
PyTorch loop in Flower's own SuperNodes, which start a process for each message. Bytes are Flower's own count.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from institutions import TABLES, Federation, free_port, prepared

from fedlit.institutions.certificates import make_authority, make_server, make_site_keys
from fedlit.institutions.extra import QUIET

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent


def by_fedlit(folder: Path, config: str, rounds: int) -> dict[str, Any]:
    """A coordinator and three sites."""
    settings, sources, _ = prepared(config, TABLES, {"trainer": {"max_epochs": rounds}})
    federation = Federation(folder, settings, sources)
    begun = time.time()
    path, ends = folder / "coordinator" / "state" / "progress.json", dict[int, float]()
    for name in ("coordinator", *sources):
        federation.start(name)
    coordinator = federation.processes["coordinator"]
    while coordinator.poll() is None:
        try:
            told = json.loads(path.read_text())
            ends.setdefault(int(told["round"]), time.time())
        except (OSError, ValueError, KeyError, TypeError):
            pass
        time.sleep(0.02)
    codes = federation.wait(120)
    if any(codes.values()):
        raise SystemExit(f"exit status {codes}\n{federation.said()}")
    log = (folder / "coordinator.log").read_text()
    carried = next(line for line in log.splitlines() if line.startswith("Flower carried"))
    numbers = [int(word.replace(",", "")) for word in carried.split() if word.replace(",", "").isdigit()]
    moments = [when for _, when in sorted(ends.items())]
    return {"whole": time.time() - begun, "bytes": sum(numbers), "ends": moments}


def by_flower(folder: Path, config: str, rounds: int) -> dict[str, Any]:
    """Flower's SuperLink and three SuperNodes, and ``flwr run``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make_authority(folder, "benchmark")
    make_server(folder, "localhost")
    port = free_port()
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "localhost:{port}"\n'
        f'root-certificates = "{folder / "ca.crt"}"\n'
    )
    path = os.pathsep.join(map(str, (HERE, HERE.parent)))
    environment = {**os.environ, **QUIET, "FLWR_HOME": str(home), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: Any) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            own = subprocess.Popen([*map(str, words)], stdout=log, stderr=log, env=environment, cwd=folder)
        started.append(own)

    def flwr(*words: Any) -> str:
        done = subprocess.run(
            [str(BIN / "flwr"), *map(str, words)], capture_output=True, text=True, env=environment, cwd=folder
        )
        if done.returncode:
            raise SystemExit(f"flwr {words[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    begun = time.time()
    try:
        secure = ["--ssl-ca-certfile", folder / "ca.crt", "--ssl-certfile", folder / "server.crt"]
        secure += ["--ssl-keyfile", folder / "server.key", "--enable-supernode-auth"]
        start(
            "superlink", BIN / "flower-superlink", *secure, "--host", "127.0.0.1", "--port", port,
            "--disable-runtime-dependency-installation",
        )  # fmt: skip
        time.sleep(5)
        for site in TABLES:
            (folder / site).mkdir()
            make_site_keys(folder / site, site)
            flwr("supernode", "register", folder / site / f"{site}.pub", "here", "--name", site)
            start(
                site, BIN / "flower-supernode", "--superlink", f"localhost:{port}", "--root-certificates",
                folder / "ca.crt", "--auth-supernode-private-key", folder / site / "site.key",
                "--host", "127.0.0.1", "--port", free_port(), "--node-config", f'site="{site}"',
            )  # fmt: skip
        shutil.copytree(HERE / "flower_app", folder / "app")
        out = folder / "ends.json"
        (folder / "run.toml").write_text(f'config = "{config}"\nrounds = {rounds}\nout = "{out}"\n')
        flwr("run", folder / "app", "here", "--stream", "--run-config", folder / "run.toml")
        whole = time.time() - begun
        (run,) = json.loads(flwr("ls", "here", "--format", "json"))["runs"]
        if not out.is_file():
            raise SystemExit(f"flwr run: {run['status']}; look at {folder}")
    finally:
        for own in reversed(started):
            own.terminate()
        for own in started:
            own.wait(30)
    carried = int(run["network-traffic"]["total-bytes"])
    return {"whole": whole, "bytes": carried, "ends": json.loads(out.read_text())}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="heart_gl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=("fedlit", "ordinary"))
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp())
    for name, measure in (("fedlit", by_fedlit), ("ordinary app", by_flower)):
        if asked.only and not name.startswith(asked.only):
            continue
        found = measure(folder / name.split()[0], asked.config, asked.rounds)
        first, *later = found["ends"][1:]  # what the first round takes is mostly imports
        mean = (later[-1] - first) / len(later)
        carried = f"{found['bytes'] // asked.rounds:,} bytes a round, all sites, both ways"
        print(f"{name:<13} {mean:6.2f} s a round (whole: {found['whole']:.0f} s), {carried}", flush=True)


if __name__ == "__main__":
    main()
