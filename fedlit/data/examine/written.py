"""A commented configuration for tables that were looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from fedlit.data.examine.propose import Proposal
from fedlit.show.text import counted, shorten

__all__ = ["init_args", "written"]

_TRAINING = """\
  batches: 10  # per epoch, of every client
model:
  client:
    class_path: fedlit.FederatedClient
    init_args:
      network:
        class_path: fedlit.MLP  # encoder: first layer; core; head: last layer
        init_args: {hidden: [64, 64, 64], dropout: 0.1}
  optimizer:
    class_path: torch.optim.AdamW
    init_args: {lr: 0.001, weight_decay: 0.01}
  threads: 1  # small networks: a second thread costs more than it gives
exchange:
  federated: [core]  # what clients share; none: everybody for himself
  every: epoch
# Training ends when the clients' mean loss on validation rows has not fallen
# for 30 epochs. The best state is kept: --ckpt_path best.
checkpoint: {monitor: val/loss, mode: min}
trainer:
  max_epochs: 300
  callbacks:
  - class_path: lightning.pytorch.callbacks.EarlyStopping
    init_args: {monitor: val/loss, mode: min, patience: 30}
"""
VALIDATION = 0.2
_NOT_TOLD = 6  # names of columns in a comment; the rest is counted


def init_args(proposals: Sequence[Proposal]) -> dict[str, Any]:
    """Return the arguments of :class:`fedlit.Tables`."""
    targets = {own.client: own.target for own in proposals}
    made: dict[str, Any] = {"files": {own.client: own.entry for own in proposals}}
    made["target"] = targets if len(set(targets.values())) > 1 else proposals[0].target
    if tasks := {own.client: own.task for own in proposals if own.task}:
        made["task"] = tasks
    if positive := {own.client: own.positive for own in proposals if own.positive is not None}:
        made["positive"] = positive
    if proposals[0].sites is not None:  # of any client, so that client_column can be added
        made |= {key: next(iter(own.values())) for key in ("task", "positive") if (own := made.get(key))}
    if proposals[0].federation:
        if not proposals[0].options:
            made["files"] = proposals[0].path
        made |= proposals[0].federation
    if any(own.unlabelled for own in proposals):
        made["unlabelled"] = "drop"
    made["validation"] = VALIDATION
    return made


def written(proposals: Sequence[Proposal], file: str) -> str:
    """The text of a configuration that trains as it is.

    Args:
        proposals: of all clients.
        file: how it will be called, for the commands in it.
    """
    lines = [
        "# Written by fedlit init. What was guessed is said beside it. Next:",
        f"#   fedlit check --config {file}",
        f"#   fedlit fit --config {file}",
        f"#   fedlit test --config {file} --ckpt_path best",
        f"#   fedlit predict --config {file} --ckpt_path best",
        "seed: 1",
        "data:",
        "  source:",
        "    class_path: fedlit.Tables",
        "    init_args:",
    ]
    settings = init_args(proposals)
    comments = {
        "files": [note for own in proposals for note in own.notes],
        "target": [f"{own.client}: {own.target}, {own.why}: {own.labels}" for own in proposals],
        "task": ["the target is a number: its value is predicted, not a class"],
        "positive": ["AUROC and AUPRC are of this label"],
        "unlabelled": [
            f"{own.client}: {counted(own.unlabelled, 'row')} without a label" for own in proposals if own.unlabelled
        ],
        "least_rows": ["clients of fewer rows are left out"],
        "validation": ["the share of the rows that are no test rows by which training is ended"],
    }
    for key, value in settings.items():
        lines += _comment(comments.get(key, ()), 6)
        lines += _entry(key, value, 6)
    if (sites := proposals[0].sites) is not None and not proposals[0].federation:
        text = f"To make a client of each value of {sites!r}, take the # away:"
        lines += [*_comment([text], 6), f"      # {_flow({'client_column': sites})[1:-1]}"]
    lines += _advice(proposals)
    # Each batch needs several rows, of the smallest client too, when part of its training rows is a fold.
    batches = max(1, min(10, int(0.5 * min(own.rows for own in proposals)) // 4))
    return "\n".join(lines) + "\n" + _TRAINING.replace("batches: 10", f"batches: {batches}", 1)


def _entry(key: str, value: Any, indent: int) -> list[str]:
    """A key and its value; mappings of mappings over several lines."""
    head = " " * indent + f"{_flow(key)}:"
    if isinstance(value, dict) and (key == "files" or any(isinstance(own, dict) for own in value.values())):
        return [head, *(line for name, own in value.items() for line in _entry(name, own, indent + 2))]
    if isinstance(value, dict) and "path" in value:
        return [head, *(line for name, own in value.items() for line in _entry(name, own, indent + 2))]
    return [f"{head} {_flow(value)}"]


def _flow(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _comment(lines: Iterable[str], indent: int) -> list[str]:
    import textwrap

    start = " " * indent + "# "
    return [
        own
        for line in lines
        for own in textwrap.wrap(
            " ".join(line.split()), 79, initial_indent=start, subsequent_indent=start + "  ", break_long_words=False,
            break_on_hyphens=False,
        )
    ]  # fmt: skip


def _advice(proposals: Sequence[Proposal]) -> list[str]:
    """Return comments: what each column holds, what is left out, and keys that may be wanted."""
    lines = []
    for own in proposals:
        kinds: dict[str, list[str]] = {}
        for name, kind in own.kinds.items():
            kinds.setdefault(kind, []).append(name)
        told = "; ".join(f"{kind}: {shorten(names, _NOT_TOLD)}" for kind, names in kinds.items())
        lines.append(f"{own.client}: {told}")
    lines = _comment(["What the columns hold (to say otherwise: types: {COLUMN: categorical}):", *lines], 6)
    if codes := Counter(name for own in proposals for name in own.codes):
        text = "Whole numbers of few values. If they are codes of categories, take the # away:"
        lines += [*_comment([text], 6), f"      # categorical: {_flow(list(codes))}"]
    for own in proposals:
        lines += _comment((f"{own.client}, {note.column}: {note.text}" for note in own.groups), 6)
    return lines
