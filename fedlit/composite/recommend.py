"""``fedlit recommend``: tries sensible candidates within a budget and tells each client whether to join, and with what.

<out>/<name>_<part>.yaml     the candidates, as ordinary configurations
     /<name>_best.yaml       the mixture of its choice
     /recommend.json         what was found; written last
     /progress.json          what was asked, and what the budget allows
     /trained/               the candidates' runs, as those of a mixture
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fedlit.composite.advice import advise
from fedlit.composite.asked import Asked
from fedlit.composite.budget import Choice, Cost, choose, pilot
from fedlit.composite.candidates import Candidate, alone, candidates_of, yours
from fedlit.composite.folders import CONFIG
from fedlit.composite.jobs import jobs_of, run_jobs
from fedlit.composite.mixture import Mixture
from fedlit.composite.parts import Part
from fedlit.composite.plan import MixturePlan
from fedlit.composite.recommended import DONE, Leaving, Recommendation
from fedlit.composite.scoring import held_out_of_all
from fedlit.composite.settings import MixtureSettings, PartSettings
from fedlit.composite.survey import Survey, survey
from fedlit.errors import ConfigError, FedlitError
from fedlit.files import write_text
from fedlit.run.arguments import made_from
from fedlit.run.config import read_yaml
from fedlit.run.load import load
from fedlit.show.shown import for_terminal

__all__ = ["recommend"]

PROGRESS = "progress.json"
_PILOT = 0.4  # of the budget, after which candidates are no longer tried out
_TRAINED = 0.85  # of the budget, at which all should be trained: to judge takes time, too
_LATE = 1.2  # of the budget, beyond which no further candidate is begun


def recommend(asked: Asked, tell: Callable[[str], None] | None = None) -> Recommendation:
    """Try what is sensible, and say what each client gains. Never reads what test rows have to be predicted as.

    Args:
        asked: what is asked.
        tell: where progress is told; printed if None.

    Raises:
        ConfigError: a configuration that cannot be read, a budget that is too small, or a folder with other contents.
        RunError: own models could not be trained.
    """
    return _Work(asked, tell or (lambda line: print(for_terminal(line), flush=True))).run()


@dataclass
class _Work:
    """One recommendation on its way."""

    asked: Asked
    tell: Callable[[str], None]
    began: float = field(default_factory=time.perf_counter)
    spent: float = 0.0  # before it was cut short
    out: dict[str, str] = field(default_factory=dict)

    def run(self) -> Recommendation:
        asked, kept = self.asked, _begin(self.asked)
        if kept:
            self.spent = float(kept["spent"])
            self.tell(f"Going on in {asked.out}, where {self.spent:,.0f} s were spent")
        folder = str(asked.config.parent)  # a class of the reader may lie there
        sys.path += [folder] if folder not in sys.path else []
        raw = read_yaml(asked.config)
        _write(self.file("tables"), alone(raw)(60), self.head("TabM at each client. Go-alone models read its tables."))
        found = self.survey()
        try:
            candidates = self.candidates(raw, found)
            if "choice" in kept:
                choice, costs = Choice(**kept["choice"]), {name: Cost(**own) for name, own in kept["costs"].items()}
            else:
                choice, costs = self.choose(candidates)
        except ConfigError:  # nothing was chosen: another budget may begin anew
            if "choice" not in kept:
                shutil.rmtree(asked.out, ignore_errors=True)
            raise
        self.out |= choice.out
        tried = [own for own in candidates if own.name in choice.epochs]
        for own in tried:
            if own.content is not None:
                _write(self.file(own.name), own.content(choice.epochs[own.name] or 1), self.head(own.about))
        self.keep(choice, costs)
        plan, parts = self.train(tried, choice, costs)
        made = self.answer(found, tried, choice, costs, plan, parts)
        self.finish(made, tried, choice)
        return made

    @property
    def elapsed(self) -> float:
        return self.spent + time.perf_counter() - self.began

    def file(self, part: str) -> Path:
        return self.asked.out / f"{self.asked.config.stem}_{part}.yaml"

    def head(self, about: str) -> str:
        return f"{made_from([self.asked.config])}\n# {about}\n"

    def survey(self) -> Survey:
        own = (f"--seed={self.asked.seed}", f"--data.folds={self.asked.folds}", "--data.fold=0")
        return survey(load(str(self.file("tables")), *own))

    def candidates(self, raw: Mapping[str, Any], found: Survey) -> list[Candidate]:
        """All that are worth a try; their files are written."""
        made, self.out = candidates_of(raw, found)
        mine, why = yours(raw, self.asked.config.name)
        if mine is not None:
            made.append(mine)
        elif why:
            self.out["yours"] = why
        for own in made:
            if own.content is not None and not self.file(own.name).is_file():
                _write(self.file(own.name), own.content(own.epochs or 1), self.head(own.about))
        return made

    def config(self, own: Candidate) -> Path:
        if own.name == "yours":
            return self.asked.config
        return self.file("tables" if own.go_alone is not None else own.name)

    # ------------------------------------------------------------------ what the budget allows

    def choose(self, candidates: list[Candidate]) -> tuple[Choice, dict[str, Cost]]:
        """By a short try of each."""
        asked, costs = self.asked, dict[str, Cost]()
        self.tell(f"Trying {len(candidates)} candidates shortly, for a budget of {asked.budget:,.0f} s")
        for own in candidates:
            if not own.needed and self.elapsed > _PILOT * asked.budget:
                self.out[own.name] = "no time was left to try it; give a larger --budget"
                continue
            try:
                costs[own.name] = pilot(
                    own, self.config(own).resolve(), asked.out / "pilot", int(asked.seed or 0), asked.folds, asked.by
                )
            except FedlitError as error:
                if own.needed:
                    raise
                self.out[own.name] = " ".join(str(error).split())
        shutil.rmtree(asked.out / "pilot", ignore_errors=True)
        choice = choose(candidates, costs, _TRAINED * asked.budget - self.elapsed, asked.folds, asked.workers)
        will = sum(choice.seconds.values())
        self.tell(f"The budget allows {len(choice.epochs)} candidates on {choice.folds} folds, some {will:,.0f} s")
        return choice, costs

    def keep(self, choice: Choice, costs: Mapping[str, Cost]) -> None:
        """Write how far it is: one that is continued goes on with the same choice."""
        _json(
            self.asked.out / PROGRESS,
            {
                "settings": self.asked.settings, "spent": self.elapsed, "choice": asdict(choice),
                "costs": {name: asdict(own) for name, own in costs.items()},
            },
        )  # fmt: skip

    # ------------------------------------------------------------------ training

    def settings(self, tried: list[Candidate], choice: Choice) -> MixtureSettings:
        parts = {}
        for own in tried:
            changed = own.name == "yours" and choice.epochs[own.name] < own.epochs
            few = {"trainer.max_epochs": choice.epochs[own.name]} if changed else {}
            parts[own.name] = PartSettings(self.config(own).resolve(), few, "last", own.go_alone, own.grid)
        asked = self.asked
        return MixtureSettings(
            parts, f"{asked.config.stem}_best", asked.out.absolute(), int(asked.seed or 0), choice.folds, asked.workers,
            "fitted", by=asked.by, origin=asked.config,
        )  # fmt: skip

    def train(
        self, tried: list[Candidate], choice: Choice, costs: Mapping[str, Cost]
    ) -> tuple[MixturePlan, dict[str, Part]]:
        """All that is not trained yet; later candidates only as long as the budget lasts."""
        asked, settings = self.asked, self.settings(tried, choice)
        folder = asked.out / "trained"
        folder.mkdir(exist_ok=True)
        (folder / CONFIG).write_text(settings.text(), encoding="utf-8")
        parts = Part.of(settings, folder.absolute())
        plan = Mixture(settings).plan_of(parts, keep=True)
        if asked.workers > 1:
            run_jobs(jobs_of(list(parts.values()), asked.by), asked.workers, self.tell)
            return plan, parts
        for own in tried:
            jobs = jobs_of([parts[own.name]], asked.by)
            left = sum(not job.done for job in jobs)
            late = self.elapsed - self.spent + choice.seconds[own.name] * left / len(jobs) > _LATE * asked.budget
            if left and late and not own.needed:
                self.out[own.name] = "training took longer than the pilot promised; give a larger --budget"
                del parts[own.name]
                continue
            if left:
                self.tell(f"{own.label} ({self.elapsed:,.0f} of {asked.budget:,.0f} s)")
            try:
                run_jobs(jobs, 1, lambda line: None)
            except FedlitError as error:
                if own.needed:
                    raise
                self.out[own.name] = " ".join(str(error).split())
                del parts[own.name]
            self.keep(choice, costs)
        return plan, parts

    # ------------------------------------------------------------------ the answer

    def answer(
        self,
        found: Survey,
        tried: list[Candidate],
        choice: Choice,
        costs: Mapping[str, Cost],
        plan: MixturePlan,
        parts: Mapping[str, Part],
    ) -> Recommendation:
        settings = self.settings(tried, choice)
        labels = {own.name: own.label for own in tried if own.name in parts}
        others = {name: label for name, label in labels.items() if name not in plan.own}
        held = held_out_of_all({name: part.out_of_fold() for name, part in parts.items()})
        clients = {
            name: advise(
                name,
                own,
                plan.own,
                settings,
                found.common[name],
                others,
                nobody=len(found.common) < 2,
                matters=self.asked.matters,
            )
            for name, own in held.items()
        }
        wanted = [name for name in others if any(own.worth_a_try and name in own.parts for own in clients.values())]
        leaving = {name: _leaving(name, plan, costs[name], choice.epochs[name], len(clients)) for name in others}
        cut = {
            own.name: (choice.epochs[own.name], own.epochs)
            for own in tried
            if own.name in parts and choice.epochs[own.name] < own.epochs
        }
        return Recommendation(
            self.asked.config.stem, clients, labels, tuple(plan.own), tuple(wanted), leaving, self.out, cut,
            (self.asked.folds, choice.folds), int(self.asked.seed or 0), self.elapsed, self.asked.budget,
            found.notes, self.file("best"),
        )  # fmt: skip

    def finish(self, made: Recommendation, tried: list[Candidate], choice: Choice) -> None:
        """Write the mixture of its choice, and what was found."""
        entries, used = dict[str, dict[str, Any]](), (*made.own, *made.wanted)
        for own in tried:
            if own.name not in used:
                continue
            entry: dict[str, Any] = {"go_alone": own.go_alone} if own.go_alone else {}
            entry["config"] = str(self.config(own))
            entry |= {"grid": own.grid} if own.grid else {}
            if own.name == "yours" and own.name in made.cut:
                entry["set"] = {"trainer.max_epochs": choice.epochs[own.name]}
            entries[own.name] = entry
        mixture = {
            "parts": entries,
            "weights": "fitted",
            "admit": True,
            **({"by": self.asked.by} if self.asked.by else {}),
        }
        content = {"seed": made.seed, "folds": choice.folds, "workers": self.asked.workers, "mixture": mixture}
        about = "Chosen by fedlit recommend: own models, and federated ones that at least one client may gain by."
        _write(
            self.file("best"),
            content,
            self.head(
                about if made.wanted else "Chosen by fedlit recommend: own models alone, for nobody gains by joining."
            ),
        )
        _json(self.asked.out / DONE, made.to_dict())


def _leaving(name: str, plan: MixturePlan, cost: Cost, epochs: int, clients: int) -> Leaving:
    exchanges = max(1, round(cost.exchanges * max(epochs, 1)))
    return Leaving(plan.plans[name].before, exchanges, round(cost.bytes / clients), plan.sentence(name))


def _begin(asked: Asked) -> dict[str, Any]:
    """What was kept of one that was cut short; empty where a new one begins.

    Raises:
        ConfigError: the folder holds something else, or one that is finished or of other settings.
    """
    folder = asked.out
    known = (folder / PROGRESS).is_file()
    if folder.is_dir() and any(folder.iterdir()) and not known:
        raise ConfigError(
            f"--out: expected a new folder, or one of fedlit recommend, found {folder} with other contents"
        )
    if known and asked.force:
        shutil.rmtree(folder)
        known = False
    if (folder / DONE).is_file():
        raise ConfigError(
            f"{folder}: expected nothing, found an earlier recommendation; give --out, or --force to delete it"
        )
    kept: dict[str, Any] = {}
    if known:
        with suppress(ValueError):
            kept = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        before, now = kept.get("settings", {}), asked.settings
        changed = [key for key in now if before.get(key) != now[key]]
        if changed:
            raise ConfigError(
                f"{folder}: expected the same settings as when it was begun, found changed {', '.join(changed)}; say "
                "--force to delete it, or give --out"
            )
        return kept
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _json(folder / PROGRESS, {"settings": asked.settings, "spent": 0.0})
    except OSError as error:
        raise ConfigError(f"--out: {folder} cannot be written: {error.strerror or error}; name another") from error
    return kept


def _write(path: Path, content: Mapping[str, Any], head: str) -> None:
    path.write_text(head + yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True), encoding="utf-8")


def _json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str) + "\n", path)
