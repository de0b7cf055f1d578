"""``fedlit predict --run``, ``export``, ``explain`` and ``add-client``: what is done with a trained
run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from fedlit.cli.commands import names
from fedlit.errors import Told, expect
from fedlit.mixture.folders import find_mixture
from fedlit.run.arguments import read
from fedlit.run.folders import find_run, find_trained
from fedlit.score.files import (
    check_input,
    check_output,
    has_reads,
    read_rows,
    scores_beside,
    write_scores,
)
from fedlit.show.shown import for_terminal
from fedlit.show.text import counted


def predict(
    *,
    run: str,
    client: str,
    data: Path,
    ckpt_path: str = "last",
    out: Path | None = None,
    keys: list[str] | None = None,
    raw: bool = False,
    curves: bool = False,
) -> None:
    """Score the rows of a file with one client of a trained run.

    The rows need no label, and the tables of the training need not exist.

    Args:
        run: a run's folder, or the name of a configuration: its newest run
        client: the client whose encoder and network score the rows
        data: the file of rows, of any format that a client's own may have; for reads also .fasta or
            .fastq
        ckpt_path: last, best, or the file of a checkpoint
        out: the .csv or .parquet file for the scores (default: NAME.scores, beside the rows and
            typed as they are)
        keys: the columns of the rows with which the scores begin
        raw: write texts as they are into a .csv file, also those that a spreadsheet would compute,
            such as =1+1
        curves: for times to an event also the probability of none up to the end of each interval
    """
    check_input(data)
    out = out or scores_beside(data)
    check_output(out, data)
    folder = _find(run, ckpt_path, "predict")  # before torch is imported
    from fedlit.mixture.opened import load_run
    from fedlit.score.rows import check_frame

    scorer = load_run(folder, client, ckpt_path)
    table = read_rows(data, scorer.encoder)
    rows = table.frame
    key_columns = ["name"] if keys is None and has_reads(data) else keys
    curve_columns = scorer.outcome.curve_columns
    if curves:
        expected = "a client that predicts times to an event"
        expect(bool(curve_columns), "--curves", expected, Told("another task"), "leave it out")
        curve_columns = ()
    scores = scorer.predict(rows, key_columns).drop(columns=[*curve_columns])
    if not scorer.keys_in(check_frame(rows, scorer.encoder), key_columns):
        scores.insert(0, "row", range(len(scores)))
    replaced = write_scores(scores, out, raw)
    done = "Replaced" if replaced else "Wrote"
    lines = [
        f"Scored {counted(len(rows), 'row')} of {data} as client {client}",
        *(f"Note: {note}" for note in (*table.notes, *scorer.notes)),
        f"{done} {out}",
    ]
    for line in lines:
        print(for_terminal(line))


def export(*, run: str, client: str, ckpt_path: str = "last", out: str | None = None) -> None:
    """Write one client of a trained run as a folder of data: encoder, network (ONNX), model card.

    fedlit.score.load(FOLDER) scores rows with it, without PyTorch, and runs no code from it.

    Args:
        run: a run's folder, or the name of a configuration: its newest run
        client: the client
        ckpt_path: last, best, or the file of a checkpoint
        out: the folder (default: export/CLIENT in the run's folder)
    """
    folder = _find(run, ckpt_path, "export")  # before torch is imported
    from fedlit.mixture import export as work

    print(for_terminal(work.export(folder, client, out, ckpt_path)))


def _find(run: str, ckpt_path: str, purpose: str) -> Path:
    """Return the folder of a run, or of a mixture."""
    return find_mixture(run) or find_trained(run, ckpt_path, purpose)[0]


def explain(
    *,
    run: str,
    client: str | None = None,
    rows: Literal["test", "validation"] = "test",
    ckpt_path: str = "last",
    repeats: int = 10,
    seed: int = 0,
    histograms: str | None = None,
    curves: str | None = None,
    out: str | None = None,
) -> None:
    """Show on which columns a client relies and whether it is calibrated, or what clients' private
    layers correct.

    With --client, each column of the client's rows is shuffled, and the loss of its main score is
    shown; for a classifier, predicted probabilities are compared with what came true. Without
    --client it needs no data: it shows corrections as heatmaps, as findings.csv, and in words; for
    FedGMCC the loss along paths between clients' models; for a mixed model, effects with intervals,
    variance components and sites' own effects; for a Cox model, hazard ratios. With --histograms, it
    draws beside corrections how the columns that a client corrects are distributed by class, from
    that client's own table. With --curves, it draws how many training rows are left without the
    event over time.

    Args:
        run: a run's folder, or the name of a configuration: its newest run
        client: the client to look into
        rows: with --client: the rows of its table, test or validation
        ckpt_path: with --client: last, best, or the file of a checkpoint
        repeats: with --client: how often each column is shuffled
        seed: with --client: the seed of the shuffles
        histograms: the clients whose marked columns are drawn, separated by commas
        curves: for task survival: client, or the column whose groups are drawn and compared
        out: where to write (default: explain/ or explain/CLIENT in the run's folder)
    """
    if client is None:
        defaults = (rows, ckpt_path, repeats, seed) == ("test", "last", 10, 0)
        expect(defaults, "--rows, --ckpt_path, --repeats, --seed", "--client beside them", None)
        folder = find_run(run)
        from fedlit.run import explanation

        clients = histograms.split(",") if histograms else ()
        explanation_of_run = explanation.explain(folder, histograms=clients, curves=curves, out=out)
    else:
        expect(histograms is None, "--histograms", "a run without --client beside it", histograms)
        expect(curves is None, "--curves", "a run without --client beside it", curves)
        folder = _find(run, ckpt_path, "explain")
        from fedlit.mixture.inspection import explain_client

        explanation_of_run = explain_client(
            folder, client, rows=rows, checkpoint=ckpt_path, repeats=repeats, seed=seed, out=out
        )
    print(for_terminal(explanation_of_run))
    print(for_terminal("\nWrote " + ", ".join(str(path) for path in explanation_of_run.files)))


def add_client(
    *keys: str,
    run: str,
    config: str,
    ckpt_path: Literal["last", "best"] = "last",
    seeds: str | None = None,
    baselines: str | None = None,
) -> None:
    """Let a client join a federation that has been trained.

    It takes the run's federated tensors, which stay unchanged, and trains its private parts on its
    own rows. Reports what the client gains over going alone. All settings are those of the run,
    except for --KEY VALUE.

    Args:
        *keys: keys of the configuration and their values: --seed 5
        run: a run's folder, or the name of a configuration: its newest run
        config: a configuration with the new client's data.source
        ckpt_path: the run's checkpoint to start from, and the state of the new client that is
            scored
        seeds: 8:28 (both ends included) or 1,2,5 (default: only the run's seed)
        baselines: only these local baselines, separated by commas, or none (default: all)
    """
    one = not (seeds or baselines) or not keys or keys[0].startswith("-")
    expect(
        one,
        "--seeds, --baselines",
        "several values as one word, such as --seeds 0:2 or 0,1,2",
        keys[:1],
    )
    folder, _ = find_trained(run, ckpt_path, "add-client")
    # refused before torch is imported
    configuration = read("fit", ["--config", config, *keys]).configs[0]
    from fedlit.study import joining

    joined = joining.add_client(
        folder,
        configuration,
        list(keys),
        ckpt_path=ckpt_path,
        seeds=seeds,
        baselines=names(baselines),
    )
    print(f"\n{for_terminal(joined)}")
