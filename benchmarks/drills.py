"""Bad clients, bad files, bad moments: each drill does harm on purpose, and says what came of it.

    python benchmarks/drills.py                            # all, as for a release: an hour or two
    on two cores python benchmarks/drills.py --only kills --kills 50
    python benchmarks/drills.py --only torn --folder /tmp/drills

Real institutions are killed on the heart-disease tables: put them into data/, or name their folder
in FEDLIT_DATA.

Prints a table. The exit status is 0 only if nothing failed. See docs/reliability.md.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

DRILLS = {
    "kills": ("kills", 200),
    "masked_kills": ("masked", 20),
    "strangers": ("lines", 1),
    "half_open": ("lines", 1),
    "site_disk": ("disk", 3),
    "two_joins": ("disk", 1),
    "hostile": ("hostile", 1),
    "beside": ("beside", 1),
    "invitation": ("beside", 1),
    "clock": ("clock", 6),
    "overask": ("overask", 1),
    "torn": ("files", 200),
    "disk_full": ("files", 20),
    "signals": ("files", 50),
    "two_writers": ("files", 5),
    "bomb": ("bomb", 1),
    "workbook": ("files", 1),
    "pages": ("pages", 1),
    "weaker": ("account", 1),
    "rare": ("rare", 1),
    "guard": ("guard", 1),
    "exclude": ("account", 2),
    "site_lies": ("liars", 1000),
    "coordinator_lies": ("liars", 1000),
}
"""Drill → its module in ``drill/``, and how often it tries. The last four train in this process:
none forks then."""


def run(name: str, folder: Path, tries: int) -> list[tuple[str, int, int, str]]:
    """The rows of a drill: what, tries, how many passed, a note."""
    module, _ = DRILLS[name]
    try:
        function = getattr(importlib.import_module(f"drill.{module}"), name)
        return list(function(folder, tries)) or [(name, 1, 0, "expected rows, found none")]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        traceback.print_exc()
        return [(name, tries, 0, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=tuple(DRILLS), help="these alone")
    parser.add_argument(
        "--kills", type=int, default=DRILLS["kills"][1], help="how many kills (default: 200)"
    )
    parser.add_argument(
        "--lies", type=int, default=1000, help="how many lies of each side (default: 1000)"
    )
    parser.add_argument(
        "--folder", type=Path, help="where to work; what failed stays there (default: a new one)"
    )
    parser.add_argument(
        "--resume", action="store_true", help="masked_kills goes on with what --folder has of it"
    )
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="fedlit-drills-"))
    rows = []
    for name in asked.only or DRILLS:
        place = folder / name
        if not asked.resume:
            shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        tries = {"kills": asked.kills, "site_lies": asked.lies, "coordinator_lies": asked.lies}
        own = run(name, place, tries.get(name, DRILLS[name][1]))
        print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        rows += own
        if all(tries == passed for _, tries, passed, _ in own):
            shutil.rmtree(place, ignore_errors=True)
    width = max(len(what) for what, *_ in rows)
    print(f"{'drill':<{width}}  tries  passed  note")
    for what, tries, passed, note in rows:
        print(
            f"{what:<{width}}  {tries:>5}  {passed:>6}  "
            f"{'' if tries == passed else 'FAILED: '}{note}"
        )
    failed = [what for what, tries, passed, _ in rows if tries != passed]
    print(f"\n{len(failed)} of {len(rows)} failed" + (f"; see {folder}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
