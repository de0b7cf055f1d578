"""Client-level differential privacy at the site (McMahan et al. 2018, "Learning Differentially
Private Recurrent Language Models", ICLR): an update is clipped, and Gaussian noise is added, before
it leaves.

The unit of protection is one client's whole update in a round, against everybody else, including
the coordinator: each client adds all of its noise itself ("local"). At institutions with one client
per site, this is the site as a whole: the messages of any two tables that a site might have,
whatever their rows, can be distinguished only within ε and δ. This is not the promise for a single
row, which needs noise in each step of training, and it is far more expensive if sites are few: the
noise of n sites shrinks only by √n, and grows with the number of tensors' values. See
:func:`noise_to_signal`.

No amplification by sampling is counted: the coordinator knows who takes part.
"""

import math
import os

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from torch import Tensor

from fedlit.errors import RunError
from fedlit.precision import double_on_cpu, in_double
from fedlit.privacy.settings import ClientLevel
from fedlit.sharing import State, form_of

NOT_COVERED = (
    "what is agreed before training: names of columns, categories and labels, counts and moments "
    "where the settings tell them",
    "numbers of rows, steps and bytes, when a site answers and whether it takes part",
    "losses and scores, where sites tell them, and whatever was chosen by them",
    "answers to questions of a rule",
    "what never leaves a site: private tensors, and predictions made with them",
    "single rows more tightly than the whole site: the promise is one for the site",
    "attacks on how floating-point numbers are rounded (Mironov 2012): noise is drawn in float64 "
    "and rounded",
)
"""What ε and δ do not cover."""


def length(state: State) -> float:
    """Return the L2 norm of all tensors together, in float64.

    Example:
        >>> length({"a": torch.tensor([3.0]), "b": torch.tensor([[4.0]])})
        5.0
    """
    squares = [float(in_double(tensor.detach()).square().sum()) for tensor in state.values()]
    return math.sqrt(sum(squares))


def difference(state: State, before: State) -> dict[str, Tensor]:
    """Return by how much a client has changed its tensors since it last received them, float64.

    Args:
        state: its federated tensors.
        before: what it received last, or what all started from.

    Raises:
        RunError: a tensor was not received, has another form, or is not of a floating-point type.
    """
    for name, value in state.items():
        if not value.is_floating_point():
            raise RunError(
                f"{name}: expected floating-point numbers under privacy, found {value.dtype}; keep "
                "it private"
            )
        if name not in before or form_of(before[name]) != form_of(value):
            received = (
                f"{before[name].dtype} of shape {tuple(before[name].shape)}"
                if name in before
                else "nothing"
            )
            raise RunError(
                f"{name}: expected to have received it before, {value.dtype} of shape "
                f"{tuple(value.shape)}, found {received}: an update is the difference to what was "
                "received"
            )
    return {
        name: double_on_cpu(value.detach()) - double_on_cpu(before[name])
        for name, value in state.items()
    }


def clipped(update: State, clip: float) -> dict[str, Tensor]:
    """Return the update, shortened to at most ``clip`` (L2, all tensors together).

    Example:
        >>> clipped({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, clip=1.0)
        {'a': tensor([0.6000]), 'b': tensor([0.8000])}
    """
    factor = min(1.0, clip / max(length(update), clip))
    return {name: tensor * factor for name, tensor in update.items()}


def gaussian(count: int, deviation: float) -> Tensor:
    """Return independent draws from N(0, deviation²), float64. They come from AES in counter mode,
    with a key of the operating system, and from the inverse of the normal distribution. No seed of
    the run is used.
    """
    from scipy.special import ndtri

    cipher = Cipher(AES256(os.urandom(32)), CTR(bytes(16))).encryptor()
    integers = np.frombuffer(cipher.update(bytes(8 * count)), "<u8")
    uniform = ((integers >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return torch.from_numpy(ndtri(uniform) * deviation)


def noised(state: State, before: State, settings: ClientLevel) -> dict[str, Tensor]:
    """Return what is sent instead of a state: what was received last + the clipped update + noise,
    drawn anew by each call.

    Args:
        state: the client's federated tensors.
        before: what it received last, which the coordinator knows: not what the client made of it
            (with ``exchange.rate`` below 1 these differ).
        settings: how much noise.

    Returns:
        Tensors of the state's types.

    Raises:
        RunError: values that are not finite, integers, or tensors that were not received.
    """
    update = difference(state, before)
    if not math.isfinite(length(update)):
        raise RunError(
            "expected finite numbers in the update, found some that are not; nothing was sent"
        )
    noise = gaussian(
        sum(change.numel() for change in update.values()), settings.noise * settings.clip
    )
    sent = {}
    first = 0
    for name, change in clipped(update, settings.clip).items():
        drawn = noise[first : first + change.numel()].reshape(change.shape)
        sent[name] = (double_on_cpu(before[name]) + change + drawn).to(state[name].dtype)
        first = first + change.numel()
    return sent


def epsilon(noises: list[float], delta: float) -> float:
    """ε at δ after some rounds, by Rényi differential privacy (dp-accounting), between any two
    tables that a site might have: their clipped updates are up to twice the clip apart.

    Args:
        noises: each round's noise, in units of the clip.
        delta: δ.

    Example:
        >>> round(epsilon([2.0], delta=1e-5), 1), round(epsilon([2.0] * 30, delta=1e-5), 1)
        (4.7, 39.8)
    """
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    # the accountant's relation is left at its default, and the distance between neighbours goes
    # into the noise
    accountant = RdpAccountant()
    for noise in sorted(set(noises)):
        accountant.compose(dp_event.GaussianDpEvent(noise / 2), noises.count(noise))
    return float(accountant.get_epsilon(delta)) if noises else 0.0


def noise_to_signal(values: int, sites: int, noise: float) -> float:
    """Return the length of the noise in the mean of the sites' updates, relative to the longest
    possible mean (the clip): noise · √(values / sites).

    Example:
        A small network of three sites: the noise is 29 times as long as what it hides.

        >>> round(noise_to_signal(values=2_500, sites=3, noise=1.0))
        29
    """
    return noise * math.sqrt(values / sites)
