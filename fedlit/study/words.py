"""What is said of a study in sentences: what is predicted from how much, what the words of its tables mean, how it was
made.
"""

from __future__ import annotations

import math
from collections import Counter

from fedlit.exchange import named
from fedlit.show.text import shorten
from fedlit.statistics import MIN_SEEDS
from fedlit.study.collect import Collected
from fedlit.study.findings import Findings
from fedlit.study.out_of_fold import FEW_FOLDS, OUT_OF_FOLD
from fedlit.study.seeds import seed_words
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, Study
from fedlit.study.units import choice_words, in_percent

__all__ = [
    "HINDSIGHT_WORDS", "about_joining", "context", "each_of", "guard_notes", "one_class_notes",
    "paper_notes", "provenance", "words",
]  # fmt: skip

_MOST_NAMED = 6  # methods in one line
_MOST_CLIENTS = 6  # whose rows are told one by one


def context(found: Findings) -> list[str]:
    """What is predicted, and each client's rows: what a reader must know before any score."""
    lines, clients = [], found.collected.clients
    told = {client: found.predicted[client] for client in clients if client in found.predicted}
    if len(set(told.values())) == 1:
        lines.append(f"Predicted: {next(iter(told.values()))}")
    elif told and len(told) <= _MOST_CLIENTS:
        lines.append("Predicted: " + "; ".join(f"{client}: {what}" for client, what in told.items()))
    known, first = _rows(found), "" if found.collected.fixed else ", first seed"
    if known and len(known) <= _MOST_CLIENTS:
        each = "; ".join(f"{client}: {' / '.join(f'{count:,}' for count in own)}" for client, own in known.items())
        lines.append(f"Rows (training / validation / test{first}) – {each}")
    elif known:
        ends = [(min(own), max(own)) for own in zip(*known.values(), strict=True)]
        each = " / ".join(f"{low:,}–{high:,}" if low < high else f"{low:,}" for low, high in ends)
        lines.append(f"{len(known)} clients with rows (training / validation / test{first}): {each}")
    return lines


def _rows(found: Findings) -> dict[str, tuple[int, ...]]:
    """Client → training, validation, test rows of the reference's first run; empty where records do not tell."""
    records = found.collected.records.to_dict("records")
    own = next((record for record in records if record["method"] == found.study.reference), {})
    splits, trained = own.get("rows"), own.get("train_rows")
    if not isinstance(splits, dict) or not isinstance(trained, dict):
        return {}
    return {
        client: (trained[client], *(splits[client].get(split, {"rows": 0})["rows"] for split in ("validation", "test")))
        for client in found.collected.clients
        if client in splits and client in trained
    }


def words(found: Findings) -> dict[str, str]:
    """Word → what it means in this study."""
    study, collected = found.study, found.collected
    metric = " or ".join(score.label for score in found.choices)
    state = "after the last epoch" if study.checkpoint == "last" else "at the best checkpoint"
    dependent = "" if collected.fixed else ". Re-splits are not independent: take it for too small"
    percent = in_percent(found.scores)
    unit = percent and f", {percent}"
    return {
        "mean ± sd": f"mean and standard deviation over seeds{unit}",
        "interval": _interval_words(len(found.seeds), collected.fixed, bool(collected.bootstrap)),
        study.labels[study.reference]: "each client's network trained on its own rows, without exchange",
        **_choices(found),
        "lift": _lift_words(found),
        "join, stay alone": "the 95 % interval of the lift excludes zero, and the lift is one that matters: "
        f"{_least(found)} or more. To stay alone in comparison with the same network trained alone is negative "
        "transfer: the others' influence does damage. Each interval stands for itself: where nothing differs, about "
        "one in twenty still excludes zero",
        "no difference": "no difference that matters: the interval holds none, or excludes zero for a smaller one",
        "not enough data": f"fewer than {MIN_SEEDS} seeds, or an interval that holds both zero and a lift that matters",
        "p": "Wilcoxon's signed-rank test over seeds after Holm's correction for the number of methods and clients, "
        "for 8 seeds or more. It asks whether training again gives the same sign, not whether other rows would"
        f"{dependent}",
        **(
            {
                "mean over clients, worst client": "of each seed, then averaged; the worst may be another client in "
                "another seed"
            }
            if len(collected.clients) > 1
            else {}
        ),
        "n": "the number of seeds, where it is smaller than elsewhere: runs failed, or the score is undefined",
        "not finite": "a run lost its numbers on the way (it diverged): it has no score, and so the mean has none",
        "validation, test": f"settings, checkpoints and the best of each kind are chosen by {metric} on a run's "
        f"validation rows; its test rows are scored once, {state}"
        + ("" if collected.fixed else ". Validation rows of one seed are test rows of others"),
    }


def _least(found: Findings) -> str:
    """The smallest lift that matters, in words."""
    matters, kinds = found.study.matters, {score.percent for score in found.scores}
    words = [f"{matters:g} percentage points"] * (True in kinds) + [f"{matters:g} % of what is bettered"] * (
        False in kinds
    )
    return " or ".join(words)


def _lift_words(found: Findings) -> str:
    percent = "" if not in_percent(found.scores) else ", in percentage points"
    percent += " where scores are in %" if percent and not all(score.percent for score in found.scores) else ""
    lower = [score.label for score in found.scores if not score.higher_is_better]
    way = f". Of {' and '.join(lower)} lower is better; lift = by how much lower" if lower else ""
    return f"a method's score minus another's, seed by seed{percent}{way}"


def _choices(found: Findings) -> dict[str, str]:
    """What is chosen on validation, and what came of it."""
    study, best = found.study, choice_words(found.choices)
    meaning = {}
    if tuned := [name for name, method in study.methods.items() if method.tune]:
        meaning["tuned"] = (
            f"{', '.join(study.labels[name] for name in tuned)}: trained with every combination of settings; per seed, "
            f"a client's results are those of the one that has {best} on its validation rows"
        )
        if set(tuned) & set(study.federated):
            meaning["tuned"] += (
                ". Each combination is a federation of its own: clients that chose different settings chose different "
                "federations"
            )
    if BEST_ALONE in study.labels:
        candidates = ", ".join(study.labels[name] for name in study.alone)
        meaning["best alone"] = (
            f"per seed and client the one of {candidates} that has {best} on validation rows: what a "
            "client can have without asking anyone. Where validation rows are few, it can be worse than always taking "
            f"one{_judged(found)}"
        )
        meaning["best alone in hindsight"] = HINDSIGHT_WORDS
    if BEST_FEDERATED in study.labels:
        candidates = ", ".join(study.labels[name] for name in study.candidates)
        meaning["best federated"] = f"chosen in the same way, of {candidates}"
    if len(found.collected.clusters):
        meaning["who belongs together"] = (
            "the clusters that most of a run's last 5 rounds had, of equals the latest. Adjusted Rand index against "
            "the planted concepts: 1 for the same groups, about 0 for what chance gives; where all clients have the "
            "same concept it is 1 if they stayed in one cluster, else 0; – where no concept is known. MB: million "
            "bytes that all clients together sent and received in a round"
        )
    return meaning


HINDSIGHT_WORDS = (
    "of each client the model alone whose mean test score over seeds is best: nobody can choose it beforehand, so it "
    "is the stricter bar"
)


def _judged(found: Findings) -> str:
    """By which rows models alone were chosen, where that were not validation rows alone."""
    study, results = found.study, found.collected.results
    if not (results["split"] == OUT_OF_FOLD).any():
        return ""
    if study.folds:
        rows = f"trained on {study.folds} folds of training and validation rows, and chosen by out-of-fold predictions"
    else:
        own = sorted(set(results.loc[results["split"] == OUT_OF_FOLD, "client"]))
        rows = (
            f"chosen by out-of-fold predictions on training rows ({FEW_FOLDS} folds) at {', '.join(own)}, with fewer "
            f"than {study.small} validation rows"
        )
    return f". Go-alone models were {rows}; the best of them is compared with networks alone on validation rows"


def guard_notes(study: Study, collected: Collected) -> list[str]:
    """Clients that were left out of exchanges or made smaller, by method and worst first; then one line for each that
    was watched and took part.
    """
    if "guarded" not in collected.records:
        return []
    out: dict[tuple[str, str], Counter[str]] = {}
    seeds: dict[tuple[str, str], list[int]] = {}
    watched: dict[str, Counter[str]] = {}
    for row in collected.records[collected.records["guarded"].notna()].to_dict("records"):
        method = study.labels.get(row["method"], row["method"])
        for client, found in row["guarded"].items():
            if any(found.get(done) for done in named.OUT):
                out.setdefault((method, client), Counter()).update(found)
                seeds.setdefault((method, client), []).append(row["seed"])
            elif found.get("watched"):
                watched.setdefault(client, Counter())[method] += found["watched"]
    worst = sorted(out, key=lambda key: -sum(out[key][done] for done in named.OUT))
    notes = [
        f"{method}, seed {seed_words(seeds[method, client])}: {line}"
        for method, client in worst
        for line in named.words({client: out[method, client]})
    ]
    for client, times in watched.items():
        whole = times.total()
        told = [f"{name} {number}" for name, number in times.most_common()]
        notes.append(
            f"{client}: watched in {whole} exchange{'s' * (whole > 1)} (by method: {shorten(told, _MOST_NAMED)}), and "
            "took part; the log of a run says why"
        )
    return notes


def _interval_words(seeds: int, fixed: bool, bootstrap: bool) -> str:
    if seeds == 1:
        return "one seed says nothing about how much another would differ: there is none"
    if not fixed:
        return (
            "each seed draws its own test rows from the same table. Such re-splits share rows and are not independent, "
            "so the 95 % interval is the corrected resampled t interval of Nadeau and Bengio (2003): the variance over "
            "seeds times (1/n + test rows / training rows). It speaks of tables of this size from the same source"
        )
    if bootstrap:
        return (
            "all seeds have the same test rows and differ in training alone (initial values, order of rows). The 95 % "
            "interval adds two variances: training noise over seeds (Student's t) and the choice of test rows "
            "(bootstrap, paired between methods); lift.csv has both parts. It does not speak of other training rows"
        )
    return (
        "all seeds have the same test rows and differ in training alone (initial values, order of rows): the 95 % "
        "interval (Student's t) is of training noise only. Other test rows, or other training rows, could change more"
    )


def about_joining(found: Findings) -> str:
    """What ``leave_one_out`` compared."""
    if len(found.collected.clients) == 2:
        return (
            "There are two clients: without one of them the other goes alone. So what the other gains is its lift over "
            "going alone, and no federation was trained for it."
        )
    mixed = " The mean is over the others that have this score." if len(found.choices) > 1 else ""
    return (
        "Itself: the lift over going alone, as above. The others: their score in the federation with this client minus "
        "their score in the same federation without it, with the same seeds and settings, seed by seed." + mixed
    )


def one_class_notes(study: Study, collected: Collected) -> list[str]:
    """Models that predict one class for all test rows of a client: its scores then say little."""
    runs: Counter[tuple[str, str]] = Counter()
    named: dict[tuple[str, str], list[str]] = {}
    for record in collected.records.to_dict("records"):
        own = record.get("one_class")
        for client, label in own.items() if isinstance(own, dict) else ():
            runs[client, record["method"]] += 1
            labels = named.setdefault((client, record["method"]), [])
            labels += [label] if label not in labels else []
    counts, notes = collected.records.groupby("method").size(), []
    for client in sorted({own for own, _ in runs}):
        often = [(method, count) for (own, method), count in runs.most_common() if own == client]
        told = [
            f"{study.labels[method]} ({' or '.join(map(repr, named[client, method]))} in {count} of "
            f"{counts[method]} runs)"
            for method, count in often
        ]
        notes.append(
            f"{client}: all test rows are predicted to be of one class by {shorten(told, _MOST_NAMED)}: where the line "
            "is drawn, no rows are told apart"
        )
    return notes


def paper_notes(study: Study) -> list[str]:
    """Where the paper's figures are from, and in what their convention differs from ours: all, then those marked †."""
    if study.paper is None:
        return []
    remarks = study.paper.remarks
    source = f"Paper: {study.paper.source}. In brackets: ours minus the paper's."
    own = [f"† {label}: {remarks[method]}" for method, label in study.labels.items() if method in remarks]
    return [source, *([remarks["all"]] if "all" in remarks else []), *own]


def each_of(study: Study, method: str) -> str:
    """What the mean time of a run is of, where a method's training takes several per seed."""
    count = len(study.methods[method].combinations) if method in study.methods else 1
    return f" for each of {count} combinations" if count > 1 else ""


def provenance(found: Findings) -> list[str]:
    """When, with what, on what, how long: one line each."""
    records = found.collected.records
    versions = [", ".join(f"{name} {number}" for name, number in own.items()) for own in records["versions"]]
    machines = [
        f"{own['processor']}, {own['cores']} cores" + "".join(f", {gpu}" for gpu in own["gpus"])
        for own in records["machine"]
    ]
    first, last = min(records["finished"])[:10], max(records["finished"])[:10]
    lacking = len(found.collected.lacking)
    done = len(records) + lacking
    lines = [f"{done} of {done + len(found.failures)} runs, finished {first} to {last}"]
    lines += [f"{lacking} of these were federations without one of their clients (leave_one_out)"] if lacking else []
    lines += [f"Versions: {own}" for own in dict.fromkeys(versions)]
    lines += [f"Machine: {own}" for own in dict.fromkeys(machines)]
    times = records["seconds"].astype(float).groupby(records["method"], sort=False).mean()
    shown = [
        f"{found.study.labels[str(method)]} {seconds:.1f} s{each_of(found.study, str(method))}"
        for method, seconds in times.items()
        if math.isfinite(seconds)
    ]
    lines.append(
        "Mean time of a run (training; for go-alone models fitting, choosing and scoring): " + ", ".join(shown)
    )
    if "without" in records:
        without = records.dropna(subset="without").groupby("method", sort=False)["without"].first()
        lines += [
            f"{found.study.labels[str(name)]}: not for the task of {', '.join(own)}" for name, own in without.items()
        ]
    lines += [f"FAILED {name}: {error}" for name, error in found.failures.items()]
    return lines
