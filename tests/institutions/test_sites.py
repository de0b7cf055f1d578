"""Three sites and a coordinator, each of which may be killed, be slow, stay away, or say what does
not fit."""

import hashlib
import io
import json
import os
import runpy
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import chdir, redirect_stdout
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest
import torch
import yaml
from federations import Killed, different, weights
from lightning.pytorch.callbacks import LambdaCallback
from sites import MemoryLine, federate, settings_of

import fedlit
from fedlit.__main__ import main
from fedlit.errors import ConfigError
from fedlit.exchange.wire import unpack
from fedlit.institutions.certificates import fingerprint
from fedlit.institutions.coordinator import coordinate
from fedlit.institutions.site import Site
from fedlit.privacy.client_level import epsilon
from fedlit.privacy.ledger import Ledger
from fedlit.run.config import read_yaml
from fedlit.run.run import Run

SITES = ("breast_cancer", "digits", "wine")
IDENTITY: dict[str, Any] = {"id": "0123456789abcdef" * 2, "sites": list(SITES)}
ROOT = Path(__file__).parents[2]
ROUNDS = 3


def settings(**changes: Any) -> dict[str, Any]:
    """A small network without a source; ``changes`` by group."""
    content = read_yaml(ROOT / "tests" / "bundled.yaml")
    del content["data"]["source"]
    content["data"]["batches"] = 4
    content["trainer"] |= {"max_epochs": ROUNDS, "enable_progress_bar": False, "logger": False}
    content["model"]["client"]["init_args"]["network"]["init_args"]["hidden"] = [8, 8, 8]
    content["model"]["engine"] = "plain"
    content["checkpoint"] = {"seconds": 0, "best": 0}
    for group, own in changes.items():
        content[group] = {**content.get(group, {}), **own} if isinstance(own, dict) else own
    return content


def written(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "federation.yaml"
    path.write_text(yaml.safe_dump(settings(**changes)), encoding="utf-8")
    return path


SOURCES = {
    name: {"class_path": "fedlit.Bundled", "init_args": {"clients": [name]}} for name in SITES
}


def one_process(folder: Path, clients: Sequence[str] = SITES, **changes: Any) -> Run:
    content = settings(**changes)
    content["data"]["source"] = {
        "class_path": "fedlit.Bundled",
        "init_args": {"clients": [*clients]},
    }
    path = folder / "whole.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    run = fedlit.load(str(path), f"--trainer.default_root_dir={folder / 'one'}")
    run.fit(quiet=True)
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The federation in one process."""
    return one_process(tmp_path_factory.mktemp("whole"))


def differing(run: Run, sites: dict[str, Site]) -> list[str]:
    """Tensors that are not the same, bit for bit."""
    return different(
        weights(run),
        {key: own for site in sites.values() for key, own in weights(site.run).items()},
    )


def dying(name: str, epoch: int, times: int = 1, again: Any = None) -> Any:
    """Kills a site at the start of an epoch, so many times."""
    left = Counter({name: times})

    def before(site: str, own: Site) -> None:
        def die(*_: Any) -> None:
            if (
                own.run.trainer is not None
                and own.run.trainer.current_epoch == epoch
                and left[site] > 0
            ):
                left[site] -= 1
                raise Killed

        if site == name:
            callbacks = list(own.run.trainer_options.get("callbacks") or [])
            own.run.trainer_options["callbacks"] = [
                *callbacks,
                LambdaCallback(on_train_epoch_start=die),
            ]
            if again is not None and left[site] == 0:
                again()

    return before


TABLES = {"breast_cancer": "breast_cancer.csv", "digits": "digits.csv.gz", "wine": "wine_data.csv"}


def test_sites_have_one_process_bits_and_send_what_was_agreed(tmp_path: Path, whole: Run) -> None:
    """What was noted is what travelled, to the byte, and is in the terms; each site opens its own
    table alone."""
    line = MemoryLine(list(SITES))
    opened = defaultdict[str, set[str]](set)
    watched = [opened]
    sys.addaudithook(
        lambda event, own: (
            watched[0][current_thread().name].add(str(own[0])) if event == "open" else None
        )
    )
    result, sites, errors = federate(tmp_path, written(tmp_path), SOURCES, line=line)
    watched[0] = defaultdict(set)  # it cannot be taken away
    assert not errors
    assert differing(whole, sites) == []
    assert result["rounds"] == ROUNDS and set(result["took"].values()) == {ROUNDS}
    assert result["scores"] == {}  # nobody agreed to tell any
    for name, read in {**{name: [name] for name in SITES}, "MainThread": []}.items():
        assert [
            site for site, file in TABLES.items() if any(own.endswith(file) for own in opened[name])
        ] == read
    for name in SITES:
        noted = [
            json.loads(own) for own in (tmp_path / name / "traffic.jsonl").read_text().splitlines()
        ]
        sent = [content for way, site, content in line.messages if way == "from" and site == name]
        known = {own["sha256"] for own in noted}
        assert {hashlib.sha256(content).hexdigest() for content in sent} <= known
        shared = {own["key"].partition(":")[2] for own in noted if own["key"].startswith("share:")}
        assert shared == {"settings", "clients", "columns", "federated", "meaning"}
        planned = set(Site(sites[name].settings).terms().tensors)
        for own in noted:
            if own["key"].startswith("round:"):
                assert set(own["names"]["state"]) == planned and own["names"]["published"] == {}
        assert "rows" not in json.dumps(
            [own["names"] for own in noted if own["key"] != "share:settings"]
        )


def test_processes_of_two_sites_have_the_bits_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands, over Flower with TLS, and 8 MB a round. Killed while rounds go on: what
    speaks at a site and the SuperLink, which are started again; then the coordinator, which a
    person starts again.
    """
    real = runpy.run_path(str(ROOT / "benchmarks" / "institutions.py"))
    federation_of = real["Federation"]
    said = list[str]()

    def here(self: Any, *words: str) -> str:
        with chdir(self.folder), redirect_stdout(io.StringIO()) as told:
            assert main(list(words)) == 0
        said.append(told.getvalue())
        return said[-1]

    monkeypatch.setattr(federation_of, "fedlit", here)  # what ends by itself needs no process
    wide = settings()["model"]["client"]
    wide["init_args"]["network"]["init_args"]["hidden"] = [8, 1400, 1400]
    changes = {"trainer": {"max_epochs": 4}, "model": {"client": wide}}
    two = {site: SOURCES[site] for site in ("breast_cancer", "wine")}
    federation = federation_of(tmp_path / "real", settings(**changes), two)
    assert fingerprint(federation.folder / "coordinator" / "certificates" / "ca.crt") in said[0]
    assert "All sites have keys: fedlit coordinate start" in "".join(said)
    traffic = federation.folder / "wine" / "traffic.jsonl"
    until = time.monotonic() + 240

    def wait(number: int) -> None:
        while not traffic.is_file() or f'"round:{number}"' not in traffic.read_text(
            encoding="utf-8"
        ):
            assert time.monotonic() < until, federation.said()
            time.sleep(0.02)

    try:
        for name in ("coordinator", *two):
            federation.start(name)
        wait(0)
        for name in ("coordinator", "wine"):
            ((child,),) = real["children"](federation.processes[name].pid).values()
            os.kill(child, signal.SIGKILL)
        wait(2)
        os.killpg(federation.processes["coordinator"].pid, signal.SIGKILL)
        assert federation.processes["coordinator"].wait() == -signal.SIGKILL
        federation.start("coordinator")
        codes = federation.wait(240)
    finally:
        federation.end()
    assert set(codes.values()) == {0}, federation.said()
    told = (federation.folder / "coordinator.log").read_text(encoding="utf-8")
    assert "Flower's SuperLink was killed by signal 9; started again" in told, told
    alone = one_process(tmp_path, [*two], **changes).loop.federation
    assert federation.differing({name: client.state_dict() for name, client in alone.items()}) == []


def test_a_killed_site_goes_on_though_messages_repeat_or_delay(tmp_path: Path, whole: Run) -> None:
    before: dict[tuple[str, str], bytes] = {}

    def meddle(way: str, site: str, content: bytes) -> list[bytes]:
        old = before.get((way, site))
        before[way, site] = content
        return [content, content, *([old] if old and way == "from" else [])]

    line = MemoryLine(list(SITES), meddle)
    _, sites, errors = federate(
        tmp_path, written(tmp_path), SOURCES, line=line, before=dying("digits", 1), attempts=2
    )
    assert not errors
    assert differing(whole, sites) == []


IFCA = {"exchange": {"rule": {"class_path": "fedlit.IFCA", "init_args": {"clusters": 2}}}}


@pytest.mark.parametrize("changes", [{}, IFCA], ids=["mean", "ifca"])
def test_a_killed_coordinator_goes_on_with_the_same_bits(changes: Any, tmp_path: Path) -> None:
    """Killed before each tenth message that it sends; and, as IFCA asks each client in each round,
    in each round before the last site is asked.
    """
    whole = one_process(tmp_path, **changes)
    line = MemoryLine(list(SITES))
    count = Counter[str]()
    reply = line.reply

    def counted(site: str, content: bytes) -> None:
        message = unpack(content)
        last = "n" in message and site == SITES[-1]
        count.update(sent=1, last=last, again="again" in message)
        if (
            (last and count["last"] % 2) if changes else count["sent"] % 10 == 0
        ) and "failed" not in message:
            raise Killed
        reply(site, content)

    line.reply = counted  # type: ignore[method-assign]
    _, sites, errors = federate(
        tmp_path, written(tmp_path, **changes), SOURCES, line=line, coordinators=40
    )
    assert not errors, errors
    assert count["sent"] > 20 and (
        not changes or (count["last"] >= 2 * ROUNDS and count["again"] > 0)
    )
    assert differing(whole, sites) == []


def test_the_others_go_on_without_a_site_that_stays_away(tmp_path: Path) -> None:
    """It comes back, and goes on from what is newest."""
    line = MemoryLine(list(SITES))
    rounds: list[int] = []

    def meddle(way: str, site: str, content: bytes) -> list[bytes]:
        message = unpack(content)
        if way == "from" and site == "wine" and message["key"] == "round:1" and len(rounds) < 2:
            rounds.append(1)  # lost; it is said again when it is asked again
            return []
        return [content]

    line.meddle = meddle
    result, sites, errors = federate(
        tmp_path, written(tmp_path), SOURCES, line=line, patience=1.5, minimum=2, repeat=3
    )
    assert not errors, errors
    assert result["took"]["digits"] == ROUNDS and result["took"]["wine"] < ROUNDS
    core = {name: own.run.loop.federation[name].federated for name, own in sites.items()}
    assert all(
        torch.equal(core["digits"][key], core["breast_cancer"][key]) for key in core["digits"]
    )


def test_masked_sums_and_noise(tmp_path: Path) -> None:
    """Under masks the weights are those without, to the fixed point's tolerance, also where a site
    is killed; nobody's update is in what the coordinator hears.
    """
    slow = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.01}}
    model = {"optimizer": slow}
    whole = one_process(tmp_path, model=model)
    line = MemoryLine(list(SITES))
    federation = written(
        tmp_path, model=model, federation=IDENTITY, privacy={"masked": {"norm": 100.0}}
    )
    _, sites, errors = federate(
        tmp_path, federation, SOURCES, line=line, before=dying("wine", 1), attempts=2, patience=30
    )
    assert not errors, errors
    for name in SITES:
        mine = sites[name].run.loop.federation[name].state_dict()
        for key, value in whole.loop.federation[name].state_dict().items():
            assert torch.allclose(value, mine[key], atol=1e-5), (name, key)
    for way, _, content in line.messages:
        message = unpack(content)
        if (
            way == "from"
            and str(message.get("key", "")).startswith("round:")
            and "updates" in message
        ):
            assert all(update["state"] == {} for update in message["updates"].values())
    with pytest.raises(ConfigError, match=r"minimum: expected 1.0 with masked sums"):
        coordinate(federation, sorted(SITES), tmp_path / "two", line, minimum=2)
    level = {"client_level": {"clip": 0.1, "noise": 0.5}}
    noisy = written(tmp_path / "noisy", model=model, federation=IDENTITY, privacy=level)
    site = Site(settings_of(tmp_path / "noisy" / "wine", "wine", noisy, SOURCES["wine"]))
    assert any("ε = " in own for own in site.terms().protection)
    _, sites, errors = federate(tmp_path / "noisy", noisy, SOURCES)
    assert not errors, errors
    for name in SITES:
        told = json.loads(Path(sites[name].run.folder or "", "privacy.json").read_text())
        assert told["epsilon"] == pytest.approx(epsilon([0.5] * ROUNDS, 1e-5))


def test_replayed_messages_of_masked_sums_change_nothing(tmp_path: Path) -> None:
    """Behind each message, both ways, come the last three of the same site, as they were
    recorded."""
    changes = {"privacy": {"masked": {}}, "model": {"optimizer": {"class_path": "torch.optim.SGD"}}}
    recorded = dict[tuple[str, str], list[bytes]]()

    def replay(way: str, site: str, content: bytes) -> list[bytes]:
        before = recorded.setdefault((way, site), [])
        before.append(content)
        return [content, *before[-4:-1]]

    ends = []
    for name, meddle in {"alone": None, "replayed": replay}.items():
        (tmp_path / name).mkdir()
        federation = written(tmp_path / name, federation=IDENTITY, **changes)
        line = MemoryLine(list(SITES), meddle)
        _, sites, errors = federate(tmp_path / name, federation, SOURCES, line=line)
        assert not errors, errors
        ends.append({key: own for site in sites.values() for key, own in weights(site.run).items()})
    assert different(*ends) == []
    for site in sites.values():
        entries = Ledger(site.settings.folder / "privacy", IDENTITY["id"]).entries
        assert [entry["round"] for entry in entries] == list(range(ROUNDS))


def test_a_site_revoked_in_mid_round_voids_that_round(tmp_path: Path) -> None:
    """Masked: iris is killed in round 2, in which the others have sent their masked update; then it
    is taken off."""
    four = {**SOURCES, "iris": {"class_path": "fedlit.Bundled", "init_args": {"clients": ["iris"]}}}
    changes = {"privacy": {"masked": {}}, "model": {"optimizer": {"class_path": "torch.optim.SGD"}}}
    whole = written(tmp_path, federation={**IDENTITY, "sites": sorted(four)}, **changes)
    line = MemoryLine(list(four))

    def meddle(way: str, site: str, content: bytes) -> list[bytes]:
        if way == "to" and "iris" not in line.here:
            for questions in line.questions.values():
                questions.put(None)
            raise Killed
        return [content]

    line.meddle = meddle
    federate(tmp_path, whole, four, line=line, before=dying("iris", 1), repeat=0.5)
    left = written(tmp_path / "three", federation=IDENTITY, **changes)
    result, sites, errors = federate(tmp_path, left, SOURCES)
    assert not errors, errors
    assert result["sites"] == sorted(SITES) and set(result["took"].values()) == {ROUNDS - 1}
    first = sites["wine"].settings.folder / "privacy"
    entries = [
        (entry["round"], entry["over"]["sites"])
        for entry in Ledger(first, IDENTITY["id"]).entries
        if entry["over"]
    ]
    assert entries[0] == (0, sorted(four)) and entries[-1] == (ROUNDS - 1, sorted(SITES))
    assert len({number for number, _ in entries}) == len(entries)  # once a round
    states = [sites[name].run.loop.federation[name].federated for name in SITES]
    assert all(torch.equal(states[0][key], own[key]) for own in states for key in states[0])


def test_a_site_whose_columns_have_another_order_is_left_out(tmp_path: Path) -> None:
    """Shapes fit; the digests of the columns do not. No name of a column leaves a site."""
    columns = {"east": ["age", "crea"], "north": ["age", "crea"], "south": ["crea", "age"]}
    sources = {}
    for name, order in columns.items():
        (tmp_path / f"{name}.csv").write_text(
            "\n".join(
                [
                    ",".join([*order, "ill"]),
                    *(f"{row},{row * 7 % 11},{row % 2}" for row in range(60)),
                ]
            )
        )
        files = {name: str(tmp_path / f"{name}.csv")}
        sources[name] = {
            "class_path": "fedlit.Tables",
            "init_args": {"files": files, "target": "ill"},
        }
    line = MemoryLine(list(columns))
    federation = written(tmp_path, exchange={"federated": ["*"]})
    result, _, errors = federate(
        tmp_path, federation, sources, line=line, patience=1.5, minimum=2, repeat=3
    )
    assert set(errors) == {"south"} and "meaning" in str(errors["south"])
    assert result["took"] == {"east": ROUNDS, "north": ROUNDS, "south": 0}
    meanings = [content for way, _, content in line.messages if b"share:meaning" in content]
    assert meanings and not any(b"crea" in content for content in meanings)
