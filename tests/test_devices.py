"""What is chosen for NVIDIA GPUs, as far as a CPU shows it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from federations import trained
from lightning.pytorch import Callback


def chosen() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


class Watch(Callback):
    def on_train_batch_start(self, *_: Any) -> None:
        self.chosen = chosen()


@pytest.mark.parametrize("on", [True, False])
def test_tf32_is_chosen_while_a_run_lasts(on: bool, tmp_path: Path) -> None:
    before = chosen()
    watch = Watch()
    trained(tmp_path, loop={"tf32": on}, epochs=1, callbacks=[watch])
    assert watch.chosen == (on, on)
    assert chosen() == before
