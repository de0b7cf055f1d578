"""The command line of ``fedlit explain``. Light: what it needs is imported when it is known what is asked."""

from __future__ import annotations

from collections.abc import Sequence

from fedlit.cli.parser import Parser
from fedlit.explain import CORRECTIONS, PATHS
from fedlit.run.folders import find_run

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run ``fedlit explain`` and return its exit status."""
    parser = Parser(
        prog="fedlit explain",
        description="Show what the private layers of a run's clients correct: heatmaps, findings.csv, and in words. "
        "Needs no data; with --client also that client's own columns by class, from its own table. Of FedGMCC: the "
        "loss along paths between clients' models.",
    )
    parser.add_run()
    parser.add_argument("--client", help="draw this client's marked columns by class, from its own table")
    parser.add_argument("--epoch", type=int, help="after this epoch, one that was recorded (default: the last)")
    parser.add_argument(
        "--against",
        choices=("others", "all"),
        default="others",
        help="compare a client with the others (default), or as in the paper with all: then fewer than 6 clients have "
        "no mark",
    )
    parser.add_argument("--threshold", type=float, default=2.0, help="standard deviations of a mark (default: 2)")
    parser.add_argument("--out", help="where to write (default: explain/ in the run's folder)")
    arguments = {key: value for key, value in vars(parser.parse_args(argv)).items() if key != "trust"}
    arguments["run"] = find_run(
        arguments["run"], lambda folder: any((folder / name).is_file() for name in (CORRECTIONS, PATHS))
    )
    from fedlit.run.explanation import explain, explain_paths
    from fedlit.show.shown import for_terminal

    by_paths = not (arguments["run"] / CORRECTIONS).is_file() and (arguments["run"] / PATHS).is_file()
    found = explain_paths(arguments["run"], out=arguments["out"]) if by_paths else explain(**arguments)
    print(for_terminal(found))
    print(for_terminal("\nWrote " + ", ".join(str(path) for path in found.files)))
    return 0
