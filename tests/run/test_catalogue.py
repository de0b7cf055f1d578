"""Every method's card and configuration: they belong together, and hold over tables that differ."""

import re
import shlex
from inspect import signature
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from federations import BUNDLED

import fedlit
from fedlit.__main__ import main
from fedlit.run.arguments import read
from fedlit.run.catalogue import FAMILIES, PLAIN, Card, cards, section, short, times
from fedlit.run.config import METHODS, config_folders, flatten
from fedlit.run.load import load
from fedlit.run.run import Run

FOLDER = config_folders()[-1] / METHODS
SIZES = {"ash": 90, "birch": 60, "cedar": 75, "dogwood": 60, "elm": 60, "fir": 60}
BASE = """
seed: 3
data:
  source: {{class_path: fedlit.Tables, init_args: {{files: {files}, target: ill}}}}
  batches: 4
  scaling: pooled
model:
  client:
    class_path: fedlit.FedProx
    init_args:
      mu: 7.5
      network: {{class_path: fedlit.GlobalLayers, init_args: {{global_features: 2, width: 8, blocks: 1, heads: 2}}}}
  optimizer: {{class_path: torch.optim.SGD, init_args: {{lr: 0.05}}}}
  threads: 1
exchange: {{federated: [core], rule: {{class_path: fedlit.FedGMCC, init_args: {{samples: 9, outputs: raw}}}}}}
trainer: {{max_epochs: 2, enable_progress_bar: false, enable_checkpointing: false, logger: false}}
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of six clients with three columns, two of which all have, and two classes."""
    folder = tmp_path_factory.mktemp("tables")
    for place, (client, rows) in enumerate(SIZES.items()):
        rng = np.random.default_rng(place)
        x = rng.normal(size=(rows, 3))
        frame = pd.DataFrame(x, columns=["age", "dose", f"own_{place % 2}"])
        frame["ill"] = (x[:, 0] + x[:, 1] + rng.normal(size=rows) > 0).astype(int)
        frame.to_csv(folder / f"{client}.csv", index=False)
    path = folder / "base.yaml"
    path.write_text(
        BASE.format(files={client: f"{folder}/{client}.csv" for client in SIZES}), encoding="utf-8"
    )
    return path


def run_of(base: Path, method: str, folder: Path, *args: str) -> Run:
    return load(str(base), f"--method={method}", f"--trainer.default_root_dir={folder}", *args)


def test_each_method_has_a_card_and_a_configuration() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(cards())
    assert list(dict.fromkeys(card.family for card in cards().values())) == [
        family for family in FAMILIES if any(card.family == family for card in cards().values())
    ]


def test_a_card_names_what_its_configuration_and_its_class_have() -> None:
    for name, card in cards().items():
        text = card.settings
        assert text.startswith("# ") and card.equation and card.paper
        named = {
            str(value)
            for _, value in flatten(yaml.safe_load(text))
            if str(value).startswith("fedlit.")
        }
        own = [part.strip() for part in card.python.split(",") if part.strip()]
        for path in {*named, *own}:
            assert isinstance(locate(path), type), path
        kind: Any = locate(own[-1]) if own else dict
        parameters = signature(kind).parameters if own else {}
        for key, parameter in parameters.items():
            # which is every client's
            if parameter.default is not parameter.empty and key != "class_weights":
                assert f"{key}: {parameter.default}" in card.defaults, (name, key)
        assert all(key.split(".")[0] in ("model", "exchange", "data") for key in card.tune), name


APART = {"fedrep", "ifedavg", "scaffold", "fednova", "by_part", "cfl", "fedgmcc", "chfl", "krum"}
"""One of each way to exchange, or to send something beside; the others are `full`, and trained by
tests/contract."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in APART else [pytest.mark.full])
        for name, card in cards().items()
        if card.family != "trees and linear"
    ],
)
def test_a_method_trains_and_costs_what_its_card_says(
    name: str, base: Path, tmp_path: Path
) -> None:
    run = run_of(base, name, tmp_path)
    run.fit(quiet=True)
    assert run.loop.federation.step > 0
    assert all(
        bool(value.isfinite().all())
        for value in run.loop.state_dict().values()
        if value.is_floating_point()
    )
    exchange = run.exchange
    parameters = sum(
        exchange.sharing.forms[own] and int(np.prod(exchange.sharing.forms[own][1], initial=1))
        for names in exchange.sharing.names.values()
        for own in names
    )
    if not parameters or exchange.rule.facts.by_questions:
        return
    sent = exchange.bytes / (2 * 4 * parameters * exchange.rounds)
    assert sent == pytest.approx(cards()[name].bytes, rel=0.15), (
        f"the card of {name} should say {sent:.2f}"
    )


def test_nothing_of_another_method_is_left(base: Path, tmp_path: Path) -> None:
    settings = run_of(base, "fedavg", tmp_path).settings or {}
    assert settings["exchange.rule.class_path"] == "fedlit.Mean"
    assert settings["model.client.class_path"].endswith("FederatedClient")
    assert not [
        key for key, value in settings.items() if key.endswith((".mu", ".samples")) or value == 7.5
    ]
    assert settings["model.client.init_args.network.init_args.width"] == 8  # the network stays
    plain = yaml.safe_load(PLAIN.read_text(encoding="utf-8"))
    reset = {f"{group}.{key}" for group, keys in plain.items() for key in keys}
    changed = {
        f"{group}.{key}"
        for name in cards()
        for group, keys in yaml.safe_load(cards()[name].settings).items()
        for key in keys
    }
    # not a method's, but what it cannot do without: how rows are encoded, the optimizer, the length
    # of a training
    steps = {"data.batches", "data.batch_size", "data.steps", "trainer.max_epochs"}
    needed = {*steps, "data.categories", "data.scaling", "model.optimizer"}
    left = changed - reset - needed
    assert not left, (
        "what a method sets must go back to its default below another one: add it to plain.yaml"
    )


def test_what_is_typed_counts_most_wherever_it_stands(base: Path) -> None:
    asked = read(
        "describe", ["--exchange.every", "step", "--method", "fedavg", "--config", str(base)]
    )
    assert [layer.where for layer in asked.layers] == [
        f"{base}: ",
        "plain.yaml: ",
        asked.layers[2].where,
        "--",
    ]
    assert asked.layers[2].method and asked.name == "base+fedavg"
    for run in (
        load(str(base), "--exchange.every=step", "--method=fedavg"),
        load(str(base), overrides={"exchange.every": "step", "method": "fedavg"}),
        load(
            str(base),
            "--exchange.every=epoch",
            overrides={"exchange": {"every": "step"}, "method": "fedavg"},
        ),
    ):
        assert (
            run.exchange.every == "step"
            and (run.settings or {})["exchange.rule.class_path"] == "fedlit.Mean"
        )


ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OVERVIEW = DOCS / "methods.md"
NAVIGATION = ROOT / "zensical.toml"
WRITTEN = {
    OVERVIEW: ("### Baselines\n", ""),
    NAVIGATION: (
        "    # methods: written by tests/run/test_catalogue.py\n",
        "    # end of methods\n",
    ),
}
"""What is written in a file begins with the first line, and ends before the second; with an empty
one, at the end."""


def tables() -> str:
    """A table of each family."""
    lines = list[str]()
    for family, title in FAMILIES.items():
        lines += [
            "",
            f"### {title}",
            "",
            "| name | idea | columns may differ | classes may differ | cost |",
        ]
        lines.append("| --- | --- | --- | --- | --- |")
        for card in family_of(family):
            cost = "–" if card.bytes is None else f"{times(card.bytes)} × bytes"
            cost += "" if card.time is None else f", {times(card.time)} × time"
            link = f"[`{card.name}`](methods/{card.name}.md)"
            cells = [link, card.idea, short(card.columns), short(card.classes), cost]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines[1:], ""])


def navigation() -> str:
    """The pages of methods, family by family, in the format of the site's navigation."""
    first, _ = WRITTEN[NAVIGATION]
    lines = [first.rstrip()]
    for family, title in FAMILIES.items():
        lines.append(f'      {{ "{title}" = [')
        lines += [
            f'        {{ "{card.title}" = "methods/{card.name}.md" }},'
            for card in family_of(family)
        ]
        lines.append("      ] },")
    return "\n".join([*lines, ""])


def method_page(card: Card) -> str:
    """The page of a method: its idea, how to apply it, and all of its card."""
    anchor = re.sub(r"[^a-z]+", "-", FAMILIES[card.family].lower())
    family = f"[{FAMILIES[card.family]}](../methods.md#{anchor})"
    idea, _, details = section(card).removeprefix(f"{card.title}. ").partition("\n\n")
    file = f"{card.name}.yaml"
    details = details.replace("```yaml\n", f"```yaml\n# file: {file}\n")
    use = f"Apply it to your configuration with `--method {card.name}`. Family: {family}."
    change = f"To change it, save it as `{file}` and name the file:"
    command = f"```bash\nfedlit describe quickstart --method {file}\n```"
    return "\n\n".join([f"# {card.title}", f"**{idea}**", use, details, change, command]) + "\n"


def family_of(family: str) -> list[Card]:
    return [card for card in cards().values() if card.family == family]


def pages() -> dict[Path, str]:
    """All that is written from the cards: file → text."""
    texts = {DOCS / "methods" / f"{card.name}.md": method_page(card) for card in cards().values()}
    for path, text in ((OVERVIEW, tables()), (NAVIGATION, navigation())):
        first, end = WRITTEN[path]
        before, _, rest = path.read_text("utf-8").partition(first)
        _, _, after = rest.partition(end) if end else ("", "", "")
        texts[path] = before + text + end + after
    return texts


def test_each_method_is_shown_with_equation_and_configuration(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, card in cards().items():
        assert main(["methods", "show", name]) == 0
        assert section(card) in (out := capsys.readouterr().out) and f"--method {name}" in out
        assert all(key in out for key in card.tune)


def test_methods_are_listed_with_their_ideas(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert max(map(len, listed.splitlines())) <= 80
    words = " ".join(listed.split())
    assert all(f" {card.name} {card.idea} " in words for card in cards().values())


def test_each_method_has_a_page_as_it_is_made() -> None:
    assert {path.stem for path in (DOCS / "methods").iterdir()} == set(cards())
    for path, text in pages().items():
        assert path.read_text("utf-8") == text, f"run python {__file__}"


# ------------------------------------------------------------------ optimizers

SGD = "{class_path: torch.optim.SGD, init_args: {lr: 0.1}}"
TYPED = "--model.optimizer=torch.optim.SGD"
OWN = """
data: {source: {class_path: fedlit.Bundled}}
model: {client: {class_path: fedlit.FederatedClient, init_args: {network: fedlit.MLP}}, optimizer: OPTIMIZER}
"""
FILES = {
    "own.yaml": f"model: {{optimizer: {SGD}}}",
    "alone.yaml": OWN.replace("OPTIMIZER", SGD),
    "fits.yaml": OWN.replace(
        "OPTIMIZER", "{class_path: torch.optim.SGD, init_args: {lr: 0.3, momentum: 0.9}}"
    ),
    "other.yaml": OWN.replace("OPTIMIZER", "{class_path: torch.optim.Adam, init_args: {lr: 0.3}}"),
}
# configuration, what is typed → what the optimizer has: another class starts from its own defaults,
# the same keeps what a layer below says, a method keeps the rate of one that fits, but no momentum
# that it cannot do with
OPTIMIZERS: list[tuple[str, str, dict[str, Any]]] = [
    ("quickstart.yaml", f"{TYPED} --model.optimizer.lr=0.1", {"lr": 0.1, "weight_decay": 0}),
    (
        "quickstart.yaml",
        "--model.optimizer=SGD --model.optimizer.init_args.lr=0.1",
        {"lr": 0.1, "weight_decay": 0},
    ),
    ("quickstart.yaml", f"--model.optimizer='{SGD}'", {"lr": 0.1, "weight_decay": 0}),
    ("quickstart.yaml", "--config own.yaml", {"lr": 0.1, "weight_decay": 0}),
    (
        "quickstart.yaml",
        "--config own.yaml --model.optimizer.lr=0.2",
        {"lr": 0.2, "weight_decay": 0},
    ),
    ("alone.yaml", "", {"lr": 0.1, "weight_decay": 0}),
    (
        str(BUNDLED),
        "--model.optimizer=AdamW --model.optimizer.lr=0.3",
        {"lr": 0.3, "weight_decay": 1e-4},
    ),
    ("fits.yaml", "--method=scaffold", {"lr": 0.3, "momentum": 0.0}),
    ("other.yaml", "--method=scaffold", {"lr": 0.05}),
    ("fits.yaml", "--method=scaffold --model.optimizer.lr=0.2", {"lr": 0.2}),
]


@pytest.mark.parametrize(("config", "typed", "expected"), OPTIMIZERS)
def test_an_optimizer_keeps_its_own_defaults(
    config: str, typed: str, expected: dict[str, Any], here: Path
) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text)
    run = fedlit.load(config, *shlex.split(typed))
    found = run.loop.federation.training.optimizer([torch.nn.Parameter(torch.ones(1))]).defaults
    assert {key: found[key] for key in expected} == expected


def test_another_scheduler_starts_from_its_own_defaults(here: Path) -> None:
    step = "{class_path: torch.optim.lr_scheduler.StepLR, init_args: {step_size: 3, gamma: 0.5}}"
    Path("below.yaml").write_text(f"model: {{scheduler: {step}}}\n")
    typed = [
        "--model.scheduler=torch.optim.lr_scheduler.ExponentialLR",
        "--model.scheduler.gamma=0.9",
    ]
    found = fedlit.load("quickstart.yaml", "--config=below.yaml", *typed).settings or {}
    assert found["model.scheduler.init_args.gamma"] == 0.9


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
