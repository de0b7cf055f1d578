"""``fedlit recommend``. Light: what it needs is imported when it is known what is asked."""

from __future__ import annotations

from collections.abc import Sequence

from fedlit.cli.parser import Parser
from fedlit.composite.asked import Asked
from fedlit.run.arguments import read
from fedlit.run.config import shown
from fedlit.show.shown import for_terminal, say

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run ``fedlit recommend`` and return its exit status."""
    parser = Parser(
        prog="fedlit recommend",
        description="For the tables of a configuration: is joining worth it, for which client, with what? Trains own "
        "and federated candidates on folds of training and validation rows, in a budget, and tells each client what "
        "it gains and what would leave it. Writes the configuration of its choice. Test rows are not touched. Started "
        "again with the same settings, it goes on where it was cut short.",
    )
    parser.add_argument(
        "--config", required=True, help="a configuration with data.source; its method is a candidate too"
    )
    parser.add_argument("--budget", type=float, default=600, metavar="SECONDS", help="for everything (default: 600)")
    parser.add_argument("--folds", type=int, default=4, metavar="N", help="2 or more (default: 4)")
    parser.add_argument("--seed", type=int, metavar="N", help="of everything (default: the configuration's)")
    parser.add_argument("--by", metavar="SCORE", help="the score that decides (default: the main one of the task)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes at once (default: 1)")
    parser.add_argument("--out", metavar="FOLDER", help="for what is written (default: recommended/NAME)")
    parser.add_argument("--force", action="store_true", help="delete what an earlier one wrote there")
    asked = Asked.of(**vars(parser.parse_args(argv)))
    read("describe", ["--config", str(asked.config)])  # what is wrong is said before torch is imported
    say(f"Reading {shown(asked.config)}")
    from fedlit.composite.recommend import recommend

    found = recommend(asked)
    print(f"\n{for_terminal(found)}")
    return 0
