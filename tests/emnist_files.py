"""Small files in the layouts in which EMNIST by class is published."""

import gzip
from pathlib import Path

import numpy as np

Half = tuple[np.ndarray, np.ndarray]
"""Upright images (rows, 28, 28) and labels (rows,)."""
ROWS = {"train": 124, "test": 62}


def draw(half: str) -> Half:
    """Images of a pattern for each label, with noise."""
    rows = ROWS[half]
    labels = np.arange(rows, dtype=np.uint8) % 62
    patterns = np.random.default_rng(0).integers(0, 200, (62, 28, 28))
    noise = np.random.default_rng(rows).integers(0, 56, (rows, 28, 28))
    return (patterns[labels] + noise).astype(np.uint8), labels


def write_idx(folder: Path, half: str, packed: bool = True) -> Half:
    images, labels = draw(half)
    sizes = {"images-idx3": images.shape, "labels-idx1": labels.shape}
    # images are stored transposed
    values = {"images-idx3": images.transpose(0, 2, 1), "labels-idx1": labels}
    (folder / "emnist").mkdir(parents=True, exist_ok=True)
    for kind, shape in sizes.items():
        head = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        data = head + values[kind].tobytes()
        path = folder / "emnist" / f"emnist-byclass-{half}-{kind}-ubyte"
        if packed:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
        else:
            path.write_bytes(data)
    return images, labels


def write_csv(folder: Path, half: str) -> Half:
    """Lines of a label and 784 pixels without a header, images transposed, as on Kaggle."""
    images, labels = draw(half)
    rows = np.column_stack([labels, images.transpose(0, 2, 1).reshape(len(images), -1)])
    (folder / "emnist").mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "emnist" / f"emnist-byclass-{half}.csv", rows, fmt="%d", delimiter=",")
    return images, labels


def write_emnist(folder: Path) -> None:
    """The four IDX files, as NIST publishes them."""
    for half in ROWS:
        write_idx(folder, half)
