"""Federations whose clients are sites that know nothing of each other: in threads, or each in a process of its own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from federations import Killed, make_run, weights
from loopback import Channel, Loopback, LoopbackServer, in_threads
from torch import Tensor

import fedlit
from fedlit.client.build import build_client
from fedlit.run.run import Run


def hub_of(run: Run) -> LoopbackServer:
    """Of a federation like this run's."""
    training = run.loop.federation.training
    make = partial(build_client, training.client)
    exchange = run.exchange
    return LoopbackServer(
        exchange.rule, run.seed, exchange.minimum, lambda spec, seed: make(spec, seed), exchange.guard
    )


def over_loopback(
    folder: Path, hub: LoopbackServer | None = None, ckpt: str | None = None, *, fail: bool = False, **options: Any
) -> dict[str, Run]:
    """Each client a site, in a thread; the trained runs by client.

    Args:
        folder: below which each site has its own.
        hub: of the federation; a new one if None.
        ckpt: the file in a site's folder that it resumes from.
        fail: whether each site is to be killed.
        options: of the federation; ``callbacks`` makes a site's from its folder.
    """
    clients = options.pop("clients", ("ash", "birch", "cedar"))
    callbacks = options.pop("callbacks", lambda folder: [])
    hub = hub if hub is not None else hub_of(make_run(folder / "hub", clients=clients, **options))

    def site(name: str, channel: Channel) -> Run:
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        transport = Loopback(channel, hub.rule)
        run = make_run(own, clients=(name,), transport=transport, callbacks=callbacks(own), **options)
        try:
            run.fit(own / ckpt if ckpt else None, quiet=True)
        except Killed:
            if not fail:
                raise
        return run

    return in_threads(hub, {name: partial(site, name) for name in clients})


def joint(runs: dict[str, Run]) -> dict[str, Tensor]:
    """All tensors of all sites' clients, named as in one federation."""
    return {key: value for run in runs.values() for key, value in weights(run).items()}


def history(run: Run, client: str | None = None) -> list[dict[str, str]]:
    """What was logged, to the last bit, but for clocks; of a client and the federation, or of all."""
    others = [name for name in run.loop.federation.names if client is not None and name != client]
    return [
        {
            key: repr(value)
            for key, value in entry.items()
            if "seconds" not in key and not key.startswith(tuple(f"{name}/" for name in others))
        }
        for entry in run.loop.history
    ]


def in_a_process(channel: Any, own: str, root: str, arguments: list[str]) -> None:
    """A site in a process of its own, which ends if it opens a file below ``root`` that is not below ``own``."""
    torch.set_num_threads(1)

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(details[0], str):
            path = str(Path(details[0]).absolute())
            if path.startswith(root) and not path.startswith(own):
                raise PermissionError(f"{own} opened {path}")

    sys.addaudithook(watch)
    run = fedlit.load(*arguments, f"--trainer.default_root_dir={own}")
    run.exchange.transport = Loopback(channel, run.exchange.rule)
    run.fit(quiet=True)
    scores = run.loop.results["validation"].scores
    torch.save({"weights": weights(run), "scores": scores, "history": history(run)}, Path(own) / "end.pt")
    channel.close()
