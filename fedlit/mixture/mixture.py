"""A mixture of several parts. It offers in Python what the command line does with ``mixture:``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pandas as pd

from fedlit.data.table import Split
from fedlit.errors import ConfigError, Told, expect
from fedlit.exchange.transport import Transport
from fedlit.files import exclusive, write_text
from fedlit.jobs.runner import Say, nothing
from fedlit.mixture.combine import Combined, combine
from fedlit.mixture.folders import CONFIG, FORMAT, MIXED, newest, read_mixture
from fedlit.mixture.jobs import run_jobs
from fedlit.mixture.opened import mixed_scorer
from fedlit.mixture.parts import Part
from fedlit.mixture.plan import MixturePlan
from fedlit.mixture.planning import plan_parts
from fedlit.mixture.predicted import predicted
from fedlit.mixture.results import MixtureResults, mixtures_of, results_of
from fedlit.mixture.settings import MixtureSettings
from fedlit.mixture.written import settings_from, settings_of
from fedlit.run.folders import new_folder
from fedlit.run.predictions import PredictionFiles
from fedlit.run.scoring import ScoreSettings, supplements_of
from fedlit.run.thresholds import (
    MIXTURE,
    Threshold,
    check_two_classes,
    choose,
    keep,
    kept,
    with_threshold,
)
from fedlit.score.mixed_scorer import MixedScorer
from fedlit.score.plain import write_json
from fedlit.show.shown import for_terminal, say
from fedlit.tasks.frames import is_target
from fedlit.tasks.predictions import Predictions, PredictionTable
from fedlit.train.results import wrote
from fedlit.train.supplement import Supplement


class Mixture:
    """Trains local and federated models on folds, and mixes them for each client. Models that make
    held-out rows worse are left out.

    Everything goes to ``<root>/<name>/version_<n>/``: ``config.yaml``, ``parts/<part>/fold_<i>/``
    (ordinary runs, and models of each client's own as arrays), ``mixture.json`` (weights and scores
    per client), ``out_of_fold.parquet``, ``test.csv``, ``test.json``, ``predictions/``.

    Args:
        settings: keys and values as in a configuration (``mixture: {parts: …}``, ``seed``,
            ``folds``, …), or the settings that :func:`fedlit.mixture.written.settings_of` reads
            from a file.

    Raises:
        ConfigError: a key or value is unknown, or the configuration of a part is missing.

    Example:
        >>> mixture = Mixture({"mixture": {"parts": {"network": {"config": "quickstart"}}}, "folds": 2})
        >>> sorted(mixture.describe().plans["network"].clients)
        ['north', 'south', 'west']
    """

    def __init__(self, settings: MixtureSettings | Mapping[str, Any]) -> None:
        self.settings = (
            settings if isinstance(settings, MixtureSettings) else settings_from(settings)
        )
        self.folder: Path | None = None
        self.out: dict[str, str] = {}
        self.score = ScoreSettings(**self.settings.score)
        self.plan = MixturePlan(self.settings)
        self._held: dict[str, Predictions] | None = None
        self._built = dict[Path, dict[str, Part]]()

    @property
    def runs(self) -> Path:
        """The folder of all runs of this name."""
        return self.settings.root.absolute() / self.settings.name

    # ------------------------------------------------------------------ training

    def describe(self) -> MixturePlan:
        """Return the plan. This reads the data and builds the clients of the first fold, but trains
        nothing.

        Raises:
            ConfigError: parts cannot be mixed, because their clients, rows or targets differ.
        """
        parts = Part.of(self.settings, self.folder or self.runs / "none")
        return plan_parts(self.settings, parts, self.score)

    def fit(
        self,
        ckpt_path: str | Path | None = None,
        *,
        quiet: bool = False,
        brief: bool = False,
        seconds: float | None = None,
        progress: Say | None = None,
    ) -> MixtureResults:
        """Train all parts with all folds, and find each client's mixture.

        Args:
            ckpt_path: None for a new run; ``"last"`` to continue the newest run of this name: what
                was trained to its end is not trained again.
            quiet: print nothing but errors.
            brief: print the main score, loss and accuracy only.
            seconds: the approximate time from the call to the end of training. Each remaining
                training gets an equal share of the remaining time, and ends with an epoch, or with
                the first settings of a local baseline, which all clients get. Parts that got no
                time, or that failed, are in ``out``, with the reason.
            progress: called with a line for each training that ends; if None, the line is printed,
                unless ``quiet``.

        Returns:
            The mixtures' scores on held-out rows, which also chose the mixtures.

        Raises:
            ConfigError: the configuration cannot be run.
            RunError: training had to stop.
        """
        expected = "last, to continue the newest run"
        expect(ckpt_path in (None, "last"), "--ckpt_path", expected, ckpt_path)
        notify: Say = nothing if quiet else _print
        end = None if seconds is None else time.monotonic() + seconds
        begun = self._resumed() if ckpt_path is not None else None
        folder = self.folder = begun or new_folder(
            self.settings.root.absolute(), self.settings.name
        )
        expected = f"{folder}: expected no other process that writes there"
        do = "wait for it, or end it"
        with exclusive(folder / ".lock", expected, do):
            parts = self.built()
            try:
                self.plan = plan_parts(self.settings, parts, self.score, keep=True)
                write_text(self.settings.text(of_run=True), folder / CONFIG)
            except BaseException:
                if begun is None:  # it was refused before anything was trained
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            plan = self.plan
            notify(f"{for_terminal(plan)}\n\nRun folder: {folder}{', continued' if begun else ''}")
            remaining = None if end is None else max(0.0, end - time.monotonic())
            self.out = run_jobs(parts, self.settings.workers, progress or notify, remaining)
            self._held = predicted(
                {name: part for name, part in parts.items() if part.done()}, "validation"
            )
            self.mix()
            table = PredictionTable()
            for name, rows in self.held.items():
                for part in rows.each_part():
                    table.add(name, part)
            table.write(folder / "out_of_fold.parquet")
            results = self._results("validation")
        notify("")
        notify(for_terminal(results.brief() if brief else results))
        return results

    def mix(self, parts: Sequence[str] | None = None) -> dict[str, Combined]:
        """Find each client's mixture again, from some of the parts if they are named, and write it
        to the folder.
        """
        assert self.folder is not None
        plan = self.plan
        entering = list(parts or self.settings.parts)
        rows_of = dict[str, Predictions]()
        for name, rows in self.held.items():
            rows_of[name] = rows.only([part for part in rows.parts if part in entering])
        mixtures = combine(rows_of, plan.local, self.settings.mixing, plan.networks)
        content = {
            "format": FORMAT,
            "clients": {name: mixture.to_dict() for name, mixture in mixtures.items()},
        }
        write_json(self.folder / MIXED, content)
        return mixtures

    def _resumed(self) -> Path:
        folder = newest(self.runs)
        if folder is None:
            raise ConfigError(
                f"--ckpt_path last: expected an earlier run in {self.runs}, found none; leave it "
                "out"
            )
        if (folder / CONFIG).is_file():
            before = settings_of(folder / CONFIG).trained()
            now = self.settings.trained()
            parts = Part.of(self.settings, folder)
            changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
            changed += [f"parts.{name}" for name, part in parts.items() if part.changed]
            received = Told(f"changed {', '.join(dict.fromkeys(changed))}")
            do = f"{folder} keeps what its parts are trained with. Start a new run for others"
            expect(
                not changed, "--ckpt_path last", "changes to how parts are mixed only", received, do
            )
        return folder

    # ------------------------------------------------------------------ scoring

    def _trained(self) -> dict[str, dict[str, Any]]:
        """Return the clients' entries in ``mixture.json``, and set the run's folder."""
        self.folder = self.folder or newest(self.runs)
        if self.folder is None:
            raise ConfigError(
                f"expected a trained run of the mixture in {self.runs}, found none; run fit first"
            )
        return read_mixture(self.folder, self.settings.parts)

    def built(self) -> dict[str, Part]:
        """Return the parts of the run's folder. They are cached, because each reads its
        configuration and tables only once.
        """
        assert self.folder is not None
        if self.folder not in self._built:
            self._built = {self.folder: Part.of(self.settings, self.folder)}
        return self._built[self.folder]

    def _done(self) -> dict[str, Part]:
        return {name: part for name, part in self.built().items() if part.done()}

    @property
    def held(self) -> dict[str, Predictions]:
        """Maps each client to its parts' predictions for rows that they have not seen."""
        if self._held is None:
            self._trained()
            self._held = predicted(self._done(), "validation")
        return self._held

    def _results(self, split: Split) -> MixtureResults:
        clients = self._trained()
        predictions = self.held if split == "validation" else predicted(self._done(), split)
        results = results_of(split, predictions, clients)
        if not self.score.asked:
            return results
        return replace(
            results, supplements=self._supplements(clients, predictions, results.main.name)
        )

    def _supplements(
        self,
        clients: Mapping[str, Mapping[str, Any]],
        predictions: Mapping[str, Predictions],
        main: str,
    ) -> tuple[Supplement, ...]:
        """Return what the user asked for beside the scores, and keep the thresholds for
        predictions.
        """
        chosen: dict[str, Threshold] = {}
        if self.score.threshold is not None:
            check_two_classes({name: rows.task for name, rows in predictions.items()})
            chosen = choose(self.score.threshold, mixtures_of(self.held, clients))
            keep(cast(Path, self.folder), MIXTURE, chosen)
        # The first part has the tables of all clients.
        widest = self.built()[next(iter(self.settings.parts))].load(0)
        scored = mixtures_of(predictions, clients)
        seed = self.settings.seed
        return supplements_of(
            self.score, scored, chosen, widest.data.source, seed, main, Transport()
        )

    def _scored(
        self, split: Split, ckpt_path: str | Path | None, quiet: bool, brief: bool
    ) -> MixtureResults:
        self._use(ckpt_path, quiet)
        results = self._results(split)
        assert self.folder is not None
        existed = (self.folder / f"{split}.csv").exists()
        files = results.write(self.folder)
        if not quiet:
            line = f"\n{wrote(files, existed)}"
            print(for_terminal(results.brief() if brief else results), for_terminal(line), sep="\n")
        return results

    def _use(self, ckpt_path: str | Path | None, quiet: bool) -> None:
        reason = "a mixture has one state"
        expect(ckpt_path in (None, "last"), "--ckpt_path", "last, or nothing", ckpt_path, reason)
        self._trained()
        if not quiet:
            say(f"Using {self.folder}")

    def validate(
        self, ckpt_path: str | Path | None = None, *, quiet: bool = False, brief: bool = False
    ) -> MixtureResults:
        """Score the held-out rows. Since these also chose the mixtures, slightly lower scores are
        to be expected on new rows.
        """
        return self._scored("validation", ckpt_path, quiet, brief)

    def test(
        self, ckpt_path: str | Path | None = None, *, quiet: bool = False, brief: bool = False
    ) -> MixtureResults:
        """Score the test split, for each part by the mean of its folds' models, and for the
        mixture. Write ``test.csv`` and ``test.json`` to the run's folder.

        Args:
            ckpt_path: None or ``last``, because a mixture has only one state.
            quiet: print nothing but errors.
            brief: print the main score, loss and accuracy only.
        """
        return self._scored("test", ckpt_path, quiet, brief)

    def predict(
        self, ckpt_path: str | Path | None = None, *, format: str = "csv", quiet: bool = False
    ) -> PredictionFiles:
        """Predict each client's test rows, and write one file per client.

        Args:
            ckpt_path: see :meth:`test`.
            format: ``csv`` or ``parquet``.
            quiet: print nothing but errors.
        """
        self._use(ckpt_path, quiet)
        clients = self._trained()
        frames = dict[str, pd.DataFrame]()
        chosen = kept(self.folder, MIXTURE, list(clients), self.score.threshold)
        for name, rows in mixtures_of(predicted(self._done(), "test"), clients).items():
            frame = rows.task.frame(rows.row, rows.y, rows.predictions)
            frame = frame[[column for column in frame if not is_target(column)]]
            frames[name] = with_threshold(frame, rows, chosen.get(name, {}).get("value"))
        return PredictionFiles.written(
            frames, cast(Path, self.folder) / "predictions" / "test", format
        )

    def client(self, name: str) -> MixedScorer:
        """Return one client's mixture, to score rows without labels:
        ``mixture.client("north").predict(frame)``.
        """
        self._trained()
        return mixed_scorer(cast(Path, self.folder), name)


def _print(text: str) -> None:
    print(for_terminal(text), flush=True)
