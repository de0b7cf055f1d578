"""A client whose process ends in the middle of an epoch, in the way that ``FALLS`` says: ``HOW
CLIENT STEP``."""

import os
import signal
import time
from typing import Any

import fedlit


class Falls(fedlit.FederatedClient):
    """Killed, terminated, or at fault."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        how, client, step = os.environ.get("FALLS", "- - -1").split()
        if self.spec.name == client and self.trainer.global_step == int(step):
            if how == "error":
                raise ValueError("a broken row")
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(60)  # a long epoch
        return super().training_step(batch, batch_idx)
