"""A run of several parts: what the command line does with ``mixture:``, from Python."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedlit.composite.folders import CONFIG, MIXED, newest, read_mixture
from fedlit.composite.jobs import jobs_of, run_jobs
from fedlit.composite.parts import Part, client_rows
from fedlit.composite.plan import MixturePlan
from fedlit.composite.scoring import MixtureResults, from_held_out, held_out_of_all, predicted, results_of
from fedlit.composite.served import load_mixture
from fedlit.composite.settings import MixtureSettings, settings_from, settings_of, typed_pairs
from fedlit.composite.weigh import Weighed, weigh_all
from fedlit.data.encoding import Rows
from fedlit.data.table import Split
from fedlit.errors import ConfigError, FedlitError, did_you_mean
from fedlit.exchange.exchange import Exchange
from fedlit.files import write_frames, write_text
from fedlit.locks import exclusive
from fedlit.run.config import find_config
from fedlit.run.folders import new_folder
from fedlit.run.plan import Plan
from fedlit.run.predictions import Predictions
from fedlit.run.run import Run
from fedlit.score.mixed import MixedScorer
from fedlit.show.shown import Grid, Shown, for_terminal, say
from fedlit.tasks import Task
from fedlit.tasks.base import is_target

__all__ = ["Mixture"]


class Mixture(Shown):
    """Trains own and federated models on folds, and mixes them for each client: what makes held-out rows worse stays
    out.

    Everything goes to ``<root>/<name>/version_<n>/``: ``config.yaml``, ``parts/<part>/fold_<i>/`` (ordinary runs, and
    models of each client's own as arrays), ``mixture.json`` (weights and scores per client), ``test.csv``,
    ``test.json``, ``predictions/``.

    Args:
        settings: keys and values as a configuration has them (``mixture: {parts: …}``, ``seed``, ``folds``, …), or
            what :func:`fedlit.composite.settings.settings_of` made of a file.

    Raises:
        ConfigError: keys or values that there are not, or a part's configuration that is not there.

    Example:
        >>> mixture = Mixture({"mixture": {"parts": {"network": {"config": "quickstart"}}}, "folds": 2})
        >>> sorted(mixture.describe().plans["network"].clients)
        ['breast_cancer', 'digits', 'wine']
    """

    def __init__(self, settings: MixtureSettings | Mapping[str, Any]) -> None:
        self.settings = settings if isinstance(settings, MixtureSettings) else settings_from(settings)
        self.folder: Path | None = None
        self.weighed: dict[str, Weighed] = {}

    @classmethod
    def load(cls, config: str, *args: str) -> Mixture:
        """The mixture of a configuration.

        Args:
            config: its name or path.
            args: keys to change, as on the command line: ``"--folds=2"``, ``"--parts.forest.trainer.max_epochs=3"``.
        """
        _, typed = typed_pairs(args)
        return cls(settings_of(find_config(config), typed))

    @property
    def root(self) -> Path:
        """The folder of all runs."""
        return self.settings.root.absolute()

    def parts(self) -> list[Grid]:
        """What is known without reading anything."""
        rows = [[name, own.go_alone or own.config.name] for name, own in self.settings.parts.items()]
        return [Grid([self.settings.name, "what"], rows)]

    # ------------------------------------------------------------------ training

    def describe(self) -> MixturePlan:
        """The plan; reads the data, builds the clients of the first fold, trains nothing.

        Raises:
            ConfigError: parts that cannot be mixed: of other clients, rows or targets.
        """
        return self.plan_of(Part.of(self.settings, self.folder or self.root / self.settings.name / "none"), keep=False)

    def fit(self, ckpt_path: str | Path | None = None, *, quiet: bool = False) -> MixtureResults:
        """Train all parts with all folds, and find each client's mixture.

        Args:
            ckpt_path: None for a new run; ``"last"`` to continue the newest run of this name: what was trained to its
                end is not trained again.
            quiet: print nothing but errors.

        Returns:
            The mixtures' scores on held-out rows, which also chose the mixtures.

        Raises:
            ConfigError: the configuration cannot be run.
            RunError: training had to stop.
        """
        tell = _nothing if quiet else _print
        self.folder = self._resumed() if ckpt_path is not None else None
        if ckpt_path not in (None, "last"):
            raise ConfigError(f"--ckpt_path: expected last, to continue the newest run, found {ckpt_path}")
        begun = self.folder is not None
        folder = self.folder = self.folder or new_folder(self.root, self.settings.name)
        expected, do = f"{folder}: expected no other process that writes there", "wait for it, or end it"
        with exclusive(folder / ".lock", expected, do):
            return self._fit(folder, begun, tell)

    def _fit(self, folder: Path, begun: bool, tell: Callable[[str], None]) -> MixtureResults:
        parts = Part.of(self.settings, folder)
        try:
            plan = self.plan_of(parts, keep=True)
            write_text(self.settings.text(kept=True), folder / CONFIG)
        except BaseException:
            if not begun:  # refused before anything was trained
                shutil.rmtree(folder, ignore_errors=True)
            raise
        tell(f"{for_terminal(plan)}\n\nRun folder: {folder}{', continued' if begun else ''}")
        run_jobs(jobs_of(list(parts.values()), self.settings.by), self.settings.workers, tell)
        held = {name: part.out_of_fold() for name, part in parts.items()}
        self.weighed = weigh_all(held_out_of_all(held), plan.own, self.settings)
        pd.concat([frame.assign(part=name) for name, frame in held.items()], ignore_index=True).to_parquet(
            folder / "out_of_fold.parquet", index=False
        )
        text = json.dumps(
            {"format": 1, "clients": {name: own.to_dict() for name, own in self.weighed.items()}},
            indent=1, allow_nan=False, ensure_ascii=False,
        )  # fmt: skip
        write_text(text + "\n", folder / MIXED)
        clients = {name: own.to_dict() for name, own in self.weighed.items()}
        results = results_of("validation", from_held_out(parts, clients), clients)
        tell("")
        tell(for_terminal(results))
        return results

    def _resumed(self) -> Path:
        found = newest(self.root, self.settings.name)
        if found is None:
            raise ConfigError(
                f"--ckpt_path last: expected an earlier run of the mixture in {self.root / self.settings.name}, found "
                "none; leave --ckpt_path out to start one"
            )
        if (found / CONFIG).is_file():
            before, now = settings_of(found / CONFIG).trained(), self.settings.trained()
            changed = [key for key in ("seed", "folds") if before[key] != now[key]]
            names, parts = dict.fromkeys([*before["parts"], *now["parts"]]), Part.of(self.settings, found)
            changed += [
                f"parts.{name}"
                for name in names
                if before["parts"].get(name) != now["parts"].get(name) or parts[name].changed
            ]
            if changed:
                raise ConfigError(
                    f"--ckpt_path last: expected changes to how parts are mixed only, found changed "
                    f"{', '.join(changed)}; {found} keeps what its parts are trained with. Start a new run for others"
                )
        return found

    def plan_of(self, parts: Mapping[str, Part], *, keep: bool) -> MixturePlan:
        """The plan of parts; refuses those that cannot be mixed.

        Args:
            parts: of the run.
            keep: write what each is trained with into its folder.
        """
        plans, own, pooled, first = dict[str, Plan](), [], [], None
        for name, part in parts.items():
            run = part.load(0)
            if part.settings.go_alone is not None:
                run.exchange = Exchange()  # nobody asks anybody
            try:
                plans[name] = run.describe()
            except FedlitError as error:
                raise type(error)(f"part {name!r}: {error}") from error
            self._check_by(name, run)
            if not run.exchange.on and not run.data.pool:
                own.append(name)
            found = _tables(run)
            if first is None:
                first = name, found
            if part.settings.go_alone is not None and name not in own:
                own.append(name)
            if run.data.pool:
                pooled.append(name)
            _compare(*first, name, found, alone=name in own)
            if keep:
                part.keep(run)
            run.loop.release()
        return MixturePlan(self.settings, plans, tuple(own), tuple(pooled))

    def _check_by(self, name: str, run: Run) -> None:
        by = self.settings.by
        known = {
            score.name
            for spec in run.data.specs
            for score in spec.task.scores
            if not (score.test_only or score.context)
        }
        if by is not None and by not in known:
            raise ConfigError(
                f"mixture.by: expected a score of the task of part {name!r} ({', '.join(sorted(known))}), found {by!r}."
                + did_you_mean(by, known)
            )

    # ------------------------------------------------------------------ scoring

    def _trained(self) -> tuple[Path, dict[str, dict[str, Any]]]:
        folder = self.folder or newest(self.root, self.settings.name)
        if folder is None:
            raise ConfigError(
                f"expected a trained run of the mixture in {self.root / self.settings.name}, found none; run fit first"
            )
        self.folder = folder
        return folder, read_mixture(folder, self.settings.parts)

    def _scored(self, split: Split, ckpt_path: str | Path | None, quiet: bool, brief: bool) -> MixtureResults:
        if ckpt_path not in (None, "last"):
            raise ConfigError(
                f"--ckpt_path: expected last, or nothing, found {ckpt_path}: a mixture has one state. Which state of a "
                "part's runs is used is set with parts.NAME.checkpoint before training"
            )
        folder, clients = self._trained()
        if not quiet:
            say(f"Using {folder}")
        parts = Part.of(self.settings, folder)
        if split == "validation":
            results = results_of(split, from_held_out(parts, clients), clients)
        else:
            results = results_of(split, predicted(parts, folder, self.settings, clients), clients)
        known = (folder / f"{split}.csv").exists()
        files = results.write(folder)
        if not quiet:
            wrote = f"\n{'Replaced' if known else 'Wrote'} {files[0]} and {files[1]}"
            print(for_terminal(results.brief() if brief else results), for_terminal(wrote), sep="\n")
        return results

    def validate(
        self, ckpt_path: str | Path | None = None, *, quiet: bool = False, brief: bool = False
    ) -> MixtureResults:
        """Score the held-out rows, which also chose the mixtures: on new rows a little less is to be expected."""
        return self._scored("validation", ckpt_path, quiet, brief)

    def test(self, ckpt_path: str | Path | None = None, *, quiet: bool = False, brief: bool = False) -> MixtureResults:
        """Score the test split: of each part the mean of its folds' models, then the mixture. Writes ``test.csv`` and
        ``test.json`` into the run's folder.

        Args:
            ckpt_path: None or ``last``: a mixture has one state.
            quiet: print nothing but errors.
            brief: print the main score, loss and accuracy only.
        """
        return self._scored("test", ckpt_path, quiet, brief)

    def predict(self, ckpt_path: str | Path | None = None, *, format: str = "csv", quiet: bool = False) -> Predictions:
        """Predict each client's test rows, and write one file per client.

        Args:
            ckpt_path: see :meth:`test`.
            format: ``csv`` or ``parquet``.
            quiet: print nothing but errors.
        """
        if format not in ("csv", "parquet"):
            raise ConfigError(f"--format: expected csv or parquet, found {format!r}")
        folder, clients = self._trained()
        if not quiet:
            say(f"Using {folder}")
        out = folder / "predictions" / "test"
        files, frames = dict[str, Path](), dict[str, pd.DataFrame]()
        for name, own in predicted(Part.of(self.settings, folder), folder, self.settings, clients).items():
            frame = own.task.frame(own.row, own.y, own.mixture)
            frames[name] = frame = frame[[column for column in frame if not is_target(column)]]
            files[name] = out / f"{name}.{format}"
        write_frames({files[name]: frame for name, frame in frames.items()})
        return Predictions(frames, files)

    def client(self, name: str) -> MixedScorer:
        """One client's mixture, to score rows that nobody has labelled: ``mixture.client("north").predict(frame)``."""
        folder, _ = self._trained()
        return load_mixture(folder, name)


def _print(text: str) -> None:
    print(for_terminal(text), flush=True)


def _nothing(text: str) -> None:
    """Where nobody listens."""


def _tables(run: Run) -> dict[str, dict[tuple[str, int], tuple[Any, ...]]]:
    """Client → (split, row) that is not trained on in the first fold → its target, as people write it."""
    found: dict[str, dict[tuple[str, int], tuple[Any, ...]]] = {}
    for spec in run.data.specs:
        for site in spec.sites:
            if site.union:
                continue
            rows = {split: own for split in ("validation", "test") for own in [client_rows(run.data, split)[site.name]]}
            found[site.name] = {
                (split, int(row)): tuple(target)
                for split, own in rows.items()
                for row, target in zip(own.row, _targets(spec.task, own), strict=True)
            }
    return found


def _targets(task: Task, rows: Rows) -> list[list[Any]]:
    width = task.input_width
    frame = task.frame(rows.row, rows.y, torch.full((len(rows), width), 0.5))
    return frame[[column for column in frame if is_target(column)]].to_numpy(object).tolist()


def _compare(first: str, before: Mapping[str, Any], name: str, now: Mapping[str, Any], *, alone: bool) -> None:
    """Refuse parts that are not about the same rows. One that nobody else has a share in may leave clients out."""
    if set(now) - set(before) or (set(before) - set(now) and not alone):
        raise ConfigError(
            f"part {name!r}: expected the clients of part {first!r}, {', '.join(sorted(before))}, found "
            f"{', '.join(sorted(now))}; let all parts have one source, and the same clients of it"
        )
    for client in now:
        own = before[client]
        if set(own) != set(now[client]):
            raise ConfigError(
                f"part {name!r}, client {client!r}: expected the held-out and test rows of part {first!r}, found "
                "others; let all parts have one source, split in one way"
            )
        for row, target in own.items():
            if not _equal(target, now[client][row]):
                raise ConfigError(
                    f"part {name!r}, client {client!r}, row {row[1]}: expected the target of part {first!r}, "
                    f"{target[0]!r}, found {now[client][row][0]!r}; let all parts predict one target"
                )


def _equal(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    if len(first) != len(second):
        return False
    for one, other in zip(first, second, strict=True):
        if isinstance(one, float) and isinstance(other, float):
            if not math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-4) and not (math.isnan(one) and math.isnan(other)):
                return False
        elif one is not None and other is not None and one != other:  # None: no training row has the label
            return False
    return True
