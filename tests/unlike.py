"""What ranks of one job do, each as its number says: ``unlike.py HOW FOLDER``."""

import os
import sys
from pathlib import Path

from federations import trained
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from fedlit.train.callbacks import Checkpoints

RANK = int(os.environ.get("RANK", 0))


class Remembers(Callback):
    """Knows its trainer, as many do."""

    def on_fit_start(self, trainer, pl_module) -> None:  # type: ignore[no-untyped-def]
        """See the class."""
        self.trainer = trainer


class InTheWay(Callback):
    """Puts a folder where the second epoch's best checkpoint is to be."""

    def on_train_epoch_start(self, trainer, pl_module) -> None:  # type: ignore[no-untyped-def]
        """See the class."""
        if RANK == 0:
            (Path(trainer.default_root_dir) / "checkpoints" / "best-0001.ckpt" / "full").mkdir(
                parents=True, exist_ok=True
            )


def main(how: str, folder: Path) -> None:
    """As the first word says."""
    if how == "copies, then topics":
        run = trained(folder, loop={"engine": "plain"}, callbacks=[Remembers()], epochs=1)
        again = run.with_seed(9)
        assert again.exchange.transport is run.exchange.transport
        again.fit(quiet=True)
        print("fitted again", flush=True)
        run.group.gather("apples" if RANK else "pears", [1])
    elif how == "cannot be written":
        two = Checkpoints(best=2, seconds=0)  # each epoch's is among the best two
        run = trained(folder, loop={"engine": "plain"}, callbacks=[InTheWay()], epochs=2, checkpoints=two)
        best = next(own for own in run.trainer.callbacks if isinstance(own, ModelCheckpoint))
        kept = [Path(path).name for path in best.best_k_models]
        assert run.group.gather("best", kept) == [["best-0000.ckpt"]] * 2, kept
        print("trained to the end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
