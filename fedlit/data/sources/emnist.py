"""EMNIST by class: handwritten digits and letters, from the published IDX files."""

from __future__ import annotations

import gzip
import string
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_tables, published
from fedlit.data.table import ClientTable
from fedlit.errors import DataError

__all__ = ["CHARACTERS", "EMNIST"]

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""What the files' labels 0 to 61 stand for."""

_PARTS = tuple(f"{split}-{kind}" for split in ("train", "test") for kind in ("images-idx3", "labels-idx1"))


@dataclass(eq=False)
class EMNIST(Source):
    """EMNIST by class: 814,255 images of 62 characters in 28 by 28 pixels, one client (Cohen et al. 2017).

    Wrap it in :class:`fedlit.Partition` to distribute the rows over clients. Rows keep the files' own training and test
    split. The files store each image transposed; the columns are the pixels of the upright image, row by row.

    - Clients: one, emnist; Partition distributes its rows.
    - Columns: pixel_01_01 to pixel_28_28, row and column of the upright image, numbers from 0 to 255.
    - Target: character, one of 0 to 9, A to Z and a to z.
    - Splits: the files' own test rows; 20 % of their training rows, drawn by the run's seed, are for validation.
    - Licence: NIST states none, and asks users to cite Cohen et al. (2017).
    - Citation: G. Cohen, S. Afshar, J. Tapson and A. van Schaik (2017). EMNIST: extending MNIST to handwritten
      letters. IJCNN 2017:2921-2926.

    Args:
        root: the folder to look in first.
        validation: the share of the training rows that are validation rows, in (0, 1), drawn by the run's seed.

    Example::

        (table,) = EMNIST().tables(seed=0)
    """

    name: ClassVar[str] = "emnist"
    about: ClassVar[str] = "handwritten digits and letters, 62 classes, from the published IDX files"

    root: str | None = None
    validation: float = 0.2

    @classmethod
    def known_files(cls) -> tuple[RemoteFile, ...]:
        """Images and labels of both splits, compressed or not."""
        return tuple(
            RemoteFile(
                path=f"emnist/emnist-byclass-{part}-ubyte.gz",
                url=None,
                sha256=None,
                about=f"{part.split('-')[1]} of the {part.split('-')[0]} rows",
                page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
                alternatives=(f"emnist/emnist-byclass-{part}-ubyte", f"gzip/emnist-byclass-{part}-ubyte.gz"),
            )
            for part in _PARTS
        )

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the table; ``seed`` draws the validation rows."""
        import pandas as pd

        from fedlit.seeding import derive_seed

        train, train_labels, test, test_labels = (_read_idx(locate(file, self.root)) for file in self.known_files())
        images, labels = np.concatenate([train, test]), np.concatenate([train_labels, test_labels])
        if len(images) != len(labels) or images.ndim != 3 or labels.ndim != 1 or labels.max() >= len(CHARACTERS):
            raise DataError(
                f"emnist: expected as many labels from 0 to 61 as images, found images of shape {images.shape} and "
                f"labels of shape {labels.shape} up to {labels.max()}. Get the files of EMNIST by class again."
            )
        height, width = images.shape[2], images.shape[1]
        names = [f"pixel_{row + 1:02}_{column + 1:02}" for row in range(height) for column in range(width)]
        order = np.random.default_rng(derive_seed(seed, "emnist", "validation")).permutation(len(train))
        held = max(1, round(self.validation * len(train)))
        return check_tables(
            [
                ClientTable(
                    name="emnist",
                    features=pd.DataFrame(images.transpose(0, 2, 1).reshape(len(images), -1), columns=names),
                    target=pd.Series(np.array([*CHARACTERS])[labels], name="character"),
                    splits={
                        "train": np.sort(order[held:]),
                        "validation": np.sort(order[:held]),
                        "test": np.arange(len(train), len(images)),
                    },
                )
            ]
        )


def _read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes: two zero bytes, 8 for the type, the number of dimensions, each dimension as a
    big-endian 32-bit number, then the values.
    """
    with published(path, "an IDX file of unsigned bytes"):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read()
        start = 4 + 4 * data[3]
        if data[:3] != b"\0\0\x08":
            raise ValueError(f"bytes that begin with {data[:4].hex(' ')}")
        return np.frombuffer(data, np.uint8, offset=start).reshape(np.frombuffer(data[4:start], ">u4"))
