"""``fedlit predict --run`` and ``fedlit export``. Light: what they need is imported when it is known what is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.cli.parser import Parser
from fedlit.composite.folders import find_composite
from fedlit.errors import ConfigError
from fedlit.run.folders import find_trained
from fedlit.score.files import check_input, check_output, has_reads, read_rows, scores_beside, write_scores

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.score.scorer import Scorer

__all__ = ["ASKED_FOR", "export", "predict"]

ASKED_FOR = ("--run", "--client", "--out", "--keys")
"""Flags by which ``fedlit predict`` is about new rows."""


def predict(argv: Sequence[str]) -> int:
    """Run ``fedlit predict --run`` and return its exit status."""
    parser = Parser(
        prog="fedlit predict",
        description="Score rows of a file with one client of a trained run. The rows need no label, and the tables "
        "that were trained on need not be there.",
    )
    parser.add_run(client="the client whose encoder and network are used")
    parser.add_argument(
        "--data", required=True, type=Path, help="rows: .csv, .csv.gz or .parquet; of reads also .fasta or .fastq"
    )
    parser.add_argument("--out", type=Path, help=".csv or .parquet (default: NAME.scores.csv beside the rows)")
    parser.add_argument("--keys", nargs="+", metavar="COLUMN", help="columns of the rows that the scores begin with")
    if any(arg.partition("=")[0] in ("--config", "-c") for arg in argv):
        raise ConfigError(
            "fedlit predict: expected --run RUN (new rows, from --data) or --config NAME (a split of the tables that "
            "were trained on), found both kinds of keys; leave out one"
        )
    asked = parser.parse_args(argv)
    check_input(asked.data)
    out = asked.out or scores_beside(asked.data)
    check_output(out, asked.data)
    folder = _find(asked.run, asked.ckpt_path, "predict")  # before torch is imported
    from fedlit.composite.served import load_run
    from fedlit.show.shown import for_terminal

    scorer = load_run(folder, asked.client, asked.ckpt_path)
    raw = read_rows(asked.data, scorer.encoder)
    rows = raw.frame
    given = ["name"] if asked.keys is None and has_reads(asked.data) else asked.keys
    keys = None if given is None else [own for key in given for own in _listed(key, rows)]
    scores = scorer.predict(rows, keys)
    if not asked.keys and not scorer.keys:
        scores.insert(0, "row", range(len(scores)))
    replaced = write_scores(scores, out)
    lines = [
        f"Scored {len(rows):,} rows of {asked.data} as client {asked.client}",
        *_predicted(scores, scorer, rows),
        *(f"Note: {note}" for note in (*raw.notes, *scorer.notes, *_precision(scorer.about["precision"]))),
        f"{'Replaced' if replaced else 'Wrote'} {out}",
    ]
    for line in lines:
        print(for_terminal(line))
    return 0


def export(argv: Sequence[str]) -> int:
    """Run ``fedlit export`` and return its exit status."""
    parser = Parser(
        prog="fedlit export",
        description="Write one client of a trained run as a folder of data: encoder, network (ONNX), model card. "
        "fedlit.score.load(FOLDER) scores rows with it, without PyTorch, and runs no code from it.",
    )
    parser.add_run(client="the client")
    parser.add_argument("--out", help="the folder (default: export/CLIENT in the run's folder)")
    asked = parser.parse_args(argv)
    folder = _find(asked.run, asked.ckpt_path, "export")  # before torch is imported
    from fedlit.composite.export import export as write
    from fedlit.show.shown import for_terminal

    print(for_terminal(write(folder, asked.client, asked.out, asked.ckpt_path)))
    return 0


def _find(run: str, ckpt_path: str, purpose: str) -> Path:
    """The folder of a run, of one part or several."""
    return find_composite(run) or find_trained(run, ckpt_path, purpose)[0]


def _precision(trained: str) -> list[str]:
    """What is said where ``fedlit predict --config`` would compute otherwise."""
    same = trained in ("32", "32-true")
    return [] if same else [f"trained with trainer.precision {trained}; scored in float32, so last digits may differ"]


def _listed(key: str, rows: pd.DataFrame) -> list[str]:
    """Also ``a,b``, unless a column is called so."""
    return [key] if key in rows else [own.strip() for own in key.split(",")]


def _predicted(scores: pd.DataFrame, scorer: Scorer, rows: pd.DataFrame) -> list[str]:
    """A line for each predicted column; of reads, whose bases are a text, up to their ends."""
    import pandas as pd

    from fedlit.data.sources.new_reads import lengths
    from fedlit.tasks import SequenceLabelling

    first, classes = "predicted", bool(scorer.task.classes)
    if isinstance(scorer.task, SequenceLabelling):
        texts = [text[:end] for text, end in zip(scores[first], lengths(rows), strict=True)]
        letters = pd.Series(list("".join(texts)), dtype=object)
        return [f"{_counted(letters, scorer.encoder.target_name, classes)} (positions)"]
    if first in scores:
        return [_counted(scores[first], scorer.encoder.target_name, classes)]
    return [_counted(scores[f"{first}_{label}"], label, True) for label in scorer.task.classes]


def _counted(predicted: pd.Series, target: str, classes: bool) -> str:
    """How often what is predicted."""
    if classes:
        counts = predicted.value_counts()
        return f"Predicted {target}: " + ", ".join(f"{label} {count:,}" for label, count in counts.items())
    low, middle, high = predicted.quantile([0, 0.5, 1])
    return f"Predicted {target}: from {low:.6g} to {high:.6g}, median {middle:.6g}"
