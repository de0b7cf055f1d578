"""What ``fedlit recommend`` is asked: a configuration with tables, and the folder for all that is
written. The tables are surveyed, and the candidates become the parts of one mixture.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedlit import yaml_text
from fedlit.errors import Told, expect, must_be_known
from fedlit.files import naming, write_text
from fedlit.mixture.candidates import Candidate, Survey, configuration, survey
from fedlit.mixture.mixture import Mixture
from fedlit.mixture.settings import SCORE, Mixing, MixtureSettings, PartSettings
from fedlit.mixture.written import is_mixture
from fedlit.run.arguments import made_from, read
from fedlit.run.config import find_config, read_yaml, shown
from fedlit.run.layers import Layer, laid
from fedlit.run.load import load
from fedlit.run.modules import find_modules

DONE = "recommend.json"


@dataclass(frozen=True)
class Inquiry:
    """A configuration with tables for which a recommendation is wanted.

    Attributes:
        origin: the file of the configuration.
        content: its keys.
        folder: the folder for all that is written.
        seed: the seed of everything.
        folds: the number of folds.
    """

    origin: Path
    content: Mapping[str, Any]
    folder: Path
    seed: int
    folds: int

    @classmethod
    def of(
        cls, config: str | Path, out: str | Path | None, seed: int | None, folds: int
    ) -> Inquiry:
        """Read a configuration, and create the folder, or accept one of an interrupted
        recommendation.

        Args:
            config: the name or path of the configuration.
            out: the folder; ``recommended/<name>`` if None.
            seed: the seed; that of the configuration if None.
            folds: the number of folds.

        Raises:
            ConfigError: the configuration cannot be read, or is none of one run with tables; or the
                folder holds something else, or a finished recommendation.
        """
        path = find_config(str(config))
        content = {} if is_mixture(path) else laid([Layer(read_yaml(path))])
        source = (content.get("data") or {}).get("source")
        none = Told("a mixture, or none")
        expected = "a configuration of one run with data.source"
        do = "fedlit init writes one for the tables of a folder"
        expect(bool(source), f"--config {shown(path)}", expected, none, do)
        expect(folds >= 2, "--folds", "at least 2", folds)
        find_modules(read("describe", ["--config", str(path)]))
        folder = Path(out) if out else Path("recommended") / path.stem
        _begin(folder)
        if seed is None:
            seed = int(content.get("seed") or 0)
        return cls(path, content, folder, seed, folds)

    def write(self, name: str, content: Mapping[str, Any], about: str) -> Path:
        """Write a configuration that is derived from the user's to the folder.

        Args:
            name: what is added to the name of the user's configuration.
            content: the keys.
            about: a sentence on what it is.
        """
        path = self.folder / f"{self.origin.stem}_{name}.yaml"
        head = f"{made_from([self.origin])}\n# {about}\n"
        write_text(head + yaml_text.dump(dict(content)), path)
        return path

    @cached_property
    def tables(self) -> Path:
        """The configuration whose tables local baselines read."""
        content = configuration("network", self.content)
        return self.write("tables", content, "Local baselines read its tables.")

    def survey(self) -> Survey:
        """Examine the tables."""
        keys = (f"--seed={self.seed}", f"--data.folds={self.folds}", "--data.fold=0")
        return survey(load(str(self.tables), *keys))

    def mixture(self, candidates: Mapping[str, Candidate], by: str | None, workers: int) -> Mixture:
        """Return the mixture of all candidates, whose configurations are written.

        Args:
            candidates: maps each name to its candidate.
            by: the score that decides; the main one of a client's task if None.
            workers: the number of parallel processes.
        """
        parts = dict[str, PartSettings]()
        for name, candidate in candidates.items():
            config = self.origin if name == "yours" else self.tables
            if candidate.content is not None:
                about = f"A candidate of fedlit recommend: {candidate.label}."
                config = self.write(name, candidate.content, about)
            parts[name] = PartSettings(config, go_alone=candidate.go_alone, grid=candidate.grid)
        score = self.content.get("score") or {}
        must_be_known("score", score, SCORE)
        settings = MixtureSettings(
            parts,
            "trained",
            self.folder.absolute(),
            self.seed,
            self.folds,
            workers,
            Mixing("fitted", by=by),
            self.origin,
            score,
        )
        return Mixture(settings)

    def write_best(self, settings: MixtureSettings, parts: Collection[str], about: str) -> Path:
        """Write the mixture of some candidates as a configuration. Files in the same folder are
        given by their names only.

        Args:
            settings: the mixture of all candidates.
            parts: the candidates in it.
            about: a sentence on what it is.
        """
        chosen = dict[str, PartSettings]()
        for name in parts:
            part = settings.parts[name]
            if part.config.parent == self.folder:
                part = replace(part, config=Path(part.config.name))
            chosen[name] = part
        # How many processes this machine can carry is no property of the mixture.
        best = replace(settings, parts=chosen, name=f"{self.origin.stem}_best", workers=1)
        content: dict[str, Any] = yaml_text.load(best.text())
        del content["trainer"]
        return self.write("best", content, about)


def _begin(folder: Path) -> None:
    """Create the folder, or accept one of an interrupted recommendation.

    Raises:
        ConfigError: it holds something else, or a finished recommendation.
    """
    foreign = folder.is_dir() and any(folder.iterdir()) and not list(folder.glob("*_tables.yaml"))
    contents = Told(f"{folder} with other contents")
    expect(not foreign, "--out", "a new folder, or one of fedlit recommend", contents)
    done = (folder / DONE).is_file()
    earlier = Told("an earlier recommendation")
    expect(not done, str(folder), "nothing", earlier, "give --out, or delete the folder")
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
