"""``fedlit add-client``."""

from __future__ import annotations

from typing import Literal

from fedlit.cli.study import names
from fedlit.errors import ConfigError
from fedlit.run.arguments import read
from fedlit.run.folders import find_trained
from fedlit.show.shown import for_terminal


def add_client(
    *keys: str,
    run: str,
    config: str,
    client: str | None = None,
    ckpt_path: Literal["last", "best"] = "last",
    federated: bool = False,
    seeds: str | None = None,
    baselines: str | None = None,
) -> None:
    """Let a client join a federation that has been trained.

    It takes the run's federated tensors and trains its private parts on its own rows. Reports what the client gains
    over going alone. All settings are those of the run, except for those in --config and --KEY VALUE.

    Args:
        *keys: keys of the configuration and their values: --seed 5
        run: a run's folder, or the name of a configuration: its newest run
        config: the new client's: data.source, and keys to change
        client: which client of the source, if it has several
        ckpt_path: the run's checkpoint to start from, and the state of the new client that is scored
        federated: continue training all clients together (without it, federated parts stay unchanged, and nothing is
            exchanged)
        seeds: 8:28 (both ends included) or 1,2,5 (default: only the run's seed)
        baselines: only these local baselines, separated by commas, or none (default: all)
    """
    stray = keys[0] if keys and not keys[0].startswith("-") else None
    if stray and (seeds or baselines):
        raise ConfigError(
            "--seeds, --baselines: expected several values as one word, such as --seeds 0:2 or --seeds 0,1,2; "
            f"found another word, {stray!r}."
        )
    folder, _ = find_trained(run, ckpt_path, "add-client")
    configuration = read("fit", ["--config", config, *keys]).configs[0]  # refused before torch is imported
    from fedlit.study import joining

    found = joining.add_client(
        folder, configuration, list(keys), client=client, ckpt_path=ckpt_path, federated=federated,
        seeds=seeds, baselines=names(baselines),
    )  # fmt: skip
    print(f"\n{for_terminal(found)}")
