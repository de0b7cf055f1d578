"""What a client remembers can be read back from a checkpoint, or is refused by its key when it is saved."""

import io
from typing import Any

import numpy as np
import pytest
import torch

from fedlit.errors import ConfigError
from fedlit.train.manifest import check_state


@pytest.mark.parametrize("value", [np.float64(1), np.zeros(2), {1, 2}, [{"deep": np.float64(1)}]])
def test_what_cannot_be_read_back_is_refused_by_key(value: Any) -> None:
    with pytest.raises(ConfigError, match="'mine'"):
        check_state("a", {"fine": 1, "mine": value})


@pytest.mark.parametrize("value", [1, "a", (1, [torch.ones(2)]), {"a": {"b": None}}])
def test_what_passes_can_be_read_back(value: Any) -> None:
    check_state("a", {"mine": value})
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    torch.load(file, weights_only=True)
