"""Keys from secrets, and masks from keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
import torch
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedlit.privacy.fixed import Words
from fedlit.sharing import State, form_of

__all__ = ["derived", "digest_of", "stream"]


def digest_of(names: Iterable[str], state: State) -> str:
    """SHA-256 of tensors by name, to the last bit; names that the state does not have count, too."""
    found = hashlib.sha256()
    for name in sorted(names):
        own = state.get(name)
        found.update(json.dumps([name, None if own is None else form_of(own)]).encode())
        if own is not None:
            found.update(own.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def derived(secret: bytes, info: bytes) -> bytes:
    """A key of 32 bytes (HKDF of SHA-256, RFC 5869) that says nothing of its secret or of keys of another purpose."""
    return HKDF(hashes.SHA256(), 32, None, info).derive(secret)


def stream(key: bytes, place: int, count: int) -> Words:
    """``count`` words of AES-256 in counter mode; the place of a group is the upper half of the first block."""
    cipher = Cipher(AES256(key), CTR(place.to_bytes(8, "big") + bytes(8))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * count)), "<u8").astype(np.uint64)
