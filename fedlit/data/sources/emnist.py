"""EMNIST by class: handwritten digits and letters."""

from __future__ import annotations

import gzip
import string
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from fedlit.data.files import RemoteFile, find, locate
from fedlit.data.sources.base import Source, check_tables, published
from fedlit.data.table import ClientTable, Split

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The characters of the files' labels 0 to 61, in their order."""
_SIDE = 28
"""The pixels of an image's row and of its column."""
_NUMBERS = range(1, _SIDE + 1)
_COLUMNS = [f"pixel_{row:02}_{column:02}" for row, column in product(_NUMBERS, _NUMBERS)]

_Half = Literal["train", "test"]
_HALVES: tuple[_Half, ...] = ("train", "test")
_KINDS = ("images-idx3", "labels-idx1")


def _idx(half: _Half, kind: str) -> RemoteFile:
    name = f"emnist-byclass-{half}-{kind}-ubyte"
    return RemoteFile(
        path=f"emnist/{name}.gz",
        url=None,
        sha256=None,
        about=f"{kind.split('-')[0]} of the {half} rows; or both in the CSV file "
        f"emnist/emnist-byclass-{half}.csv",
        alternatives=(f"emnist/{name}", f"gzip/{name}.gz"),
        page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    )


def _csv(half: _Half) -> RemoteFile:
    name = f"emnist-byclass-{half}.csv"
    return RemoteFile(
        path=f"emnist/{name}",
        url=None,
        sha256=None,
        about=f"labels and images of the {half} rows, instead of the IDX files",
        alternatives=(f"emnist/{name}.gz", f"emnist/{name}.zip"),
        page="https://www.kaggle.com/datasets/crawford/emnist",
    )


@dataclass(eq=False)
class EMNIST(Source):
    """EMNIST by class: 814,255 images of 62 characters in 28 by 28 pixels, one client (Cohen et al.
    2017).

    Wrap it in :class:`fedlit.Partition` to split the rows among clients, as in FedGMCC's
    experiments. The rows of each half come from the IDX files that NIST publishes, compressed or
    not, or from the CSV file of the same rows (a label, then 784 pixels a line, without a header).
    Both store each image transposed; the columns here are the pixels of the upright image, row by
    row. The originals were not at hand when this was written.

    - Clients: one, emnist; Partition splits its rows.
    - Columns: pixel_01_01 to pixel_28_28, row and column of the upright image, numbers from 0 to
      255.
    - Target: character, one of 0 to 9, A to Z and a to z.
    - Splits: the files' own test rows; 20 % of their training rows, drawn by the run's seed, are
      for validation.
    - Licence: NIST states none, and asks users to cite Cohen et al. (2017).
    - Citation: G. Cohen, S. Afshar, J. Tapson and A. van Schaik (2017). EMNIST: extending MNIST to
      handwritten letters. IJCNN 2017:2921-2926.

    Args:
        root: the folder to look in first.
        validation: the share of the training rows that are validation rows, in (0, 1), drawn by the
            run's seed.

    Example::

        (table,) = EMNIST().tables(seed=0)
    """

    name: ClassVar[str] = "emnist"
    known_files: ClassVar[tuple[RemoteFile, ...]] = (
        *(_idx(half, kind) for half, kind in product(_HALVES, _KINDS)),
        *map(_csv, _HALVES),
    )

    root: str | None = None
    validation: float = 0.2

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the table; ``seed`` draws the validation rows."""
        import pandas as pd

        # It imports torch, which a list of sources does without.
        from fedlit.seeding import derive_seed

        halves = [self._half(half) for half in _HALVES]
        labels = np.concatenate([labels for labels, _ in halves])
        images = np.concatenate([images for _, images in halves])
        upright = images.transpose(0, 2, 1).reshape(len(images), -1)
        training = len(halves[0][0])
        rng = np.random.default_rng(derive_seed(seed, "emnist", "validation"))
        order = rng.permutation(training)
        count = max(1, round(self.validation * training))
        splits: dict[Split, np.ndarray] = {
            "train": np.sort(order[count:]),
            "validation": np.sort(order[:count]),
            "test": np.arange(training, len(images)),
        }
        features = pd.DataFrame(upright, columns=_COLUMNS)
        target = pd.Series(np.array([*CHARACTERS], dtype=object)[labels], name="character")
        return check_tables([ClientTable("emnist", features, target, splits)])

    def _half(self, half: _Half) -> tuple[np.ndarray, np.ndarray]:
        """Read the labels (rows,) and the images (rows, 28, 28) of a half, as they are stored."""
        images_file, labels_file = (_idx(half, kind) for kind in _KINDS)
        table = find(_csv(half), self.root)
        if table is not None and find(images_file, self.root) is None:
            return _read_csv(table)
        images = locate(images_file, self.root)
        return _read_idx(images, locate(labels_file, self.root))


def _read_idx(images_path: Path, labels_path: Path) -> tuple[np.ndarray, np.ndarray]:
    images = _read_bytes(images_path)
    labels = _read_bytes(labels_path)
    with published(
        images_path, f"as many images of {_SIDE} by {_SIDE} pixels as {labels_path.name} has labels"
    ):
        if images.shape != (len(labels), _SIDE, _SIDE):
            raise ValueError(f"{images.shape} pixels, {labels.shape} labels")
    _check_labels(labels_path, labels)
    return labels, images


def _read_bytes(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes: two zero bytes, 8 for the type, the number of dimensions,
    each dimension as a big-endian 32-bit number, then the values.
    """
    with published(path, "an IDX file of unsigned bytes"):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read()
        if data[:3] != b"\0\0\x08":
            raise ValueError(f"bytes that begin with {data[:4].hex(' ')}")
        start = 4 + 4 * data[3]
        shape = np.frombuffer(data[4:start], ">u4")
        return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray]:
    import pandas as pd

    with published(path, f"lines of a label and {_SIDE * _SIDE} pixels, each from 0 to 255"):
        # Stated types spare pandas the guessing, and keep the table at a byte a pixel.
        values = pd.read_csv(path, header=None, dtype=np.uint8).to_numpy()
        labels = values[:, 0]
        images = values[:, 1:].reshape(len(values), _SIDE, _SIDE)
    _check_labels(path, labels)
    return labels, images


def _check_labels(path: Path, labels: np.ndarray) -> None:
    with published(path, f"labels from 0 to {len(CHARACTERS) - 1}, of EMNIST by class"):
        if labels.max() >= len(CHARACTERS):
            raise ValueError(f"{labels.max()}")
