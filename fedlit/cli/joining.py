"""``fedlit add-client``. Light: what it needs is imported when it is known what is asked."""

from __future__ import annotations

from collections.abc import Sequence

from fedlit.cli.parser import Parser
from fedlit.run.arguments import read
from fedlit.run.folders import find_trained
from fedlit.run.keys import GROUPS

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run ``fedlit add-client`` and return its exit status."""
    parser = Parser(
        prog="fedlit add-client",
        description="Let a client join a federation that has been trained. It takes the run's federated tensors and "
        "trains its private parts on its own rows. Says what it gains over going alone. All settings are the run's, "
        "but for those in --config and --KEY VALUE.",
    )
    parser.add_run()
    parser.add_argument("--config", required=True, help="the new client's: data.source, and keys to change")
    parser.add_argument("--client", help="which client of the source, where it has several")
    parser.add_argument(
        "--ckpt_path",
        default="last",
        choices=("last", "best"),
        help="the run's checkpoint to start from, and the state of the new client that is scored (default: last)",
    )
    parser.add_argument(
        "--federated",
        action="store_true",
        help="train all clients further, together (default: what is federated stays as it is, nothing is exchanged)",
    )
    parser.add_argument("--seeds", nargs="+", metavar="N", help="train with each (default: the run's seed alone)")
    parser.add_argument(
        "--baselines", nargs="+", metavar="NAME", help="these go-alone models only, or none (default: all)"
    )
    own, keys = _apart(argv)
    asked = parser.parse_args(own)
    folder, _ = find_trained(asked.run, asked.ckpt_path, "add-client")
    config = read("fit", ["--config", asked.config, *keys]).configs[0]  # what is wrong is said before torch is imported
    from fedlit.show.shown import for_terminal
    from fedlit.study.joining import add_client

    seeds = ",".join(asked.seeds) if asked.seeds else None
    found = add_client(
        folder, config, keys, client=asked.client, ckpt_path=asked.ckpt_path, federated=asked.federated, seeds=seeds,
        baselines=[] if asked.baselines == ["none"] else asked.baselines,
    )  # fmt: skip
    print(f"\n{for_terminal(found)}")
    return 0


def _apart(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """This command's flags, and keys of the configuration with their values."""
    own, keys, into = list[str](), list[str](), list[str]()
    for arg in argv:
        if arg.startswith("-"):
            name = arg.partition("=")[0].removeprefix("--")
            into = keys if name == "seed" or name.partition(".")[0] in GROUPS else own
        (into if into is keys else own).append(arg)
    return own, keys
