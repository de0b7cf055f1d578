"""What ranks of one job do, each as its number says: ``unlike.py HOW FOLDER``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from federations import make_run
from lightning.pytorch import Callback

RANK = int(os.environ.get("RANK", 0))


class Remembers(Callback):
    """Knows its trainer, as many do."""

    def on_fit_start(self, trainer, pl_module) -> None:  # type: ignore[no-untyped-def]
        """See the class."""
        self.trainer = trainer


def main(how: str, folder: Path) -> None:
    """As the first word says."""
    if how == "settings":
        make_run(folder, loop={"engine": "plain", "gradient_clip_val": [1.0, 2.0][RANK]}, epochs=1 + RANK).fit()
    elif how == "copies, then topics":
        run = make_run(folder, loop={"engine": "plain"}, callbacks=[Remembers()], epochs=1)
        run.fit(quiet=True)
        again = run.with_seed(9)
        assert again.exchange.transport is run.transport
        again.fit(quiet=True)
        print("fitted again", flush=True)
        run.group.gather("apples" if RANK else "pears", [1])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
