"""What crosses the border of a site, looked at from outside, and what is refused there; every process is real.

    python benchmarks/institutions_watched.py traced     # under strace
    python benchmarks/institutions_watched.py refused

The exit status is 0 only if all is as it should be.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import torch
import yaml
from institutions import TABLES, Federation, deep, prepared

from fedlit.run.config import read_yaml


def traced(folder: Path) -> int:
    """Who opens which file, who connects to what, and what was sent, against the plan."""
    if shutil.which("strace") is None:
        raise SystemExit("expected strace, found none; install it")
    settings, sources, _ = prepared("heart_gl", TABLES, {"trainer": {"max_epochs": 3}})
    federation = Federation(folder, settings, sources)
    federation.traced = True
    (folder / "traces").mkdir()
    codes = federation.run(1800)
    port = str(read_yaml(folder / "coordinator" / "coordinator.yaml")["port"])
    wrong = [f"exit status {codes}\n{federation.said()}"] if any(code != 0 for code in codes.values()) else []
    for site in sources:
        wrong += _borders(folder, site, set(sources) - {site}, port) + _unplanned(folder / site)
    print("\n".join(wrong) or "nothing but the plan")
    return int(bool(wrong))


def _borders(folder: Path, site: str, others: set[str], port: str) -> list[str]:
    opened, connected, spoke, processes = [], [], set[str](), {True: 0, False: 0}
    for path in sorted((folder / "traces").glob(f"{site}.*")):
        text = path.read_text(errors="replace")
        speaks = _speaks(text)
        processes[speaks] += 1
        files = re.findall(r'open(?:at2?)?\((?:AT_FDCWD, )?"([^"]+)"', text)
        peers = re.findall(r"connect\(\d+, \{sa_family=(AF_\w+)(?:, sin6?_port=htons\((\d+)\))?", text)
        for other in others:
            opened += [file for file in files if f"{folder}/{other}/" in file or file.startswith(f"{other}/")]
        if speaks:
            own = [file for file in files if str(folder / site) in file]
            spoke.update(Path(file).name for file in own)
            opened += [file for file in own if Path(file).suffix in (".csv", ".data", ".ckpt", ".pt", ".yaml")]
            connected += [peer for peer in peers if peer[0] != "AF_UNIX" and peer[1] not in (port, "0", "")]
        else:
            connected += [peer for peer in peers if peer[0] in ("AF_INET", "AF_INET6")]
    print(
        f"{site}: {processes[False]} threads and processes beside the table, {processes[True]} that speak; in the "
        f"site's folder these opened {', '.join(sorted(spoke)) or 'nothing'}; forbidden files: {opened or 'none'}; "
        f"other connections: {connected or 'none'}",
        flush=True,
    )
    wrong = [f"{site} opened {file}" for file in opened] + [f"{site} connected to {peer}" for peer in connected]
    return wrong if processes[True] else [*wrong, f"{site}: no speaking process was seen"]


def _speaks(text: str) -> bool:
    """Whether a trace is of the speaking process: it begins by being executed as such."""
    return re.search(r'execve\("[^"]+", \[[^]]*fedlit\.institutions\.speaker', text) is not None


def _unplanned(site: Path) -> list[str]:
    """What a site has sent that is not in the terms that were accepted."""
    terms = json.loads((site / "accepted.json").read_text())[-1]["terms"]
    shapes = {name: list(form[1]) for name, form in terms["tensors"].items()}
    found, total = [], 0
    for line in (site / "traffic.jsonl").read_text().splitlines():
        own = json.loads(line)
        names, total = own["names"], total + own["bytes"]
        if own["key"].startswith("round:"):
            found += [f"{site.name} sent {name}" for name, shape in names["state"].items() if shapes.get(name) != shape]
            planned = sum(4 * torch.Size(shape).numel() for shape in names["state"].values())
            if own["bytes"] > planned + 16_384:
                found.append(f"{site.name}: {own['bytes'] - planned} bytes beside {planned} of tensors")
        elif own["key"].startswith("share:") and own["key"][6:] not in terms["facts"]:
            found.append(f"{site.name} told of {own['key'][6:]}")
    print(f"{site.name}: {total:,} bytes sent in all")
    return found


def refused(folder: Path) -> int:
    """What must not be joined, and who says why."""
    settings, sources, _ = prepared("quickstart", ("breast_cancer", "digits", "wine"), {"trainer": {"max_epochs": 2}})
    failed = 0
    for name, words in (
        ("another setting", "site wine: settings differ: exchange.rate: expected 1.0, found 0.5"),
        ("another key", "the coordinator does not know this site's key"),
        ("another authority", "expected a certificate signed by the authority"),
    ):
        federation = Federation(folder / name.replace(" ", "_"), settings, sources)
        own = federation.folder / "wine"
        if name == "another setting":
            changed = deep(json.loads(json.dumps(settings)), {"exchange": {"rate": 0.5}})
            (own / "federation.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
        elif name == "another key":
            (own / "site.key").unlink()
            (own / "wine.pub").unlink()
            federation.fedlit("site", "keys", "wine")
        else:
            federation.fedlit("coordinate", "init", "other", "--sites", "wine", "--port", "1")
            shutil.copy(federation.folder / "other" / "certificates" / "ca.crt", own / "ca.crt")
            mine = read_yaml(own / "site.yaml")
            mine.pop("fingerprint", None)
            (own / "site.yaml").write_text(yaml.safe_dump(mine, sort_keys=False))
        federation.hashes["wine"] = [federation.hash("wine")]
        for process in ("coordinator", *sources):
            federation.start(process)
        codes: dict[str, int | None] = {"wine": federation.processes["wine"].wait(180)}
        others = {site: process.poll() for site, process in federation.processes.items() if site != "wine"}
        federation.end()
        log = (federation.folder / "wine.log").read_text()
        alone = not any(code is not None for code in others.values())  # the others wait for it
        fine = words in " ".join(log.split()) and all(codes.values()) and alone and "Traceback" not in log
        failed += not fine
        print(f"{name:<18} {'refused' if fine else 'NOT AS IT SHOULD BE'} {codes}: {log.splitlines()[-1]}", flush=True)
    return int(failed > 0)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("traced", "refused"))
    parser.add_argument("--folder", type=Path, default=Path("/tmp/fedlit-watched"))
    asked = parser.parse_args()
    return {"traced": traced, "refused": refused}[asked.what](asked.folder / asked.what)


if __name__ == "__main__":
    sys.exit(main())
