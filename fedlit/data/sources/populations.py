"""Simulated populations: reads of one simulated reference, with variants of each population."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.sources.reads import BASES, table_of
from fedlit.data.table import ClientTable
from fedlit.errors import expect

_A, _C, _G, _N, _T = range(len(BASES))
_CALLED = np.array([_A, _C, _G, _T], np.int8)
# For each kind of region, the probability of A, C, G, T (columns) after A, C, G, T (rows).
# Background: A and T are a little more frequent. Island: C and G are more frequent, and G follows
# C as often as not, as in the CpG islands of mammals. Repeat: two bases take turns.
_NEXT = np.array(
    [
        [[0.30, 0.20, 0.20, 0.30]] * 4,
        [
            [0.15, 0.30, 0.40, 0.15],
            [0.15, 0.35, 0.35, 0.15],
            [0.15, 0.35, 0.35, 0.15],
            [0.10, 0.35, 0.40, 0.15],
        ],
        [
            [0.05, 0.85, 0.05, 0.05],
            [0.85, 0.05, 0.05, 0.05],
            [0.45, 0.45, 0.05, 0.05],
            [0.45, 0.45, 0.05, 0.05],
        ],
    ]
)
_SHARE = np.array([0.5, 0.3, 0.2])
"""The shares of the kinds among regions."""
_REGION = 60.0
"""The mean number of bases of a region."""
_UNCALLED = 0.001
"""The probability that a base is not read."""
_HOT = 10.0
"""How many times as often as others a C before a G, or that G, varies: cytosines there mutate most
(Nachman 2000)."""
_WORD = 5


@dataclass(frozen=True, eq=False)
class World:
    """The reference and the variants from which all reads are drawn.

    Attributes:
        reference: (R,) the codes of the reference's bases.
        sites: (S,) the positions that vary, ascending.
        alternative: (S,) the code of the other base.
        ancestral: (S,) the frequency of the other base in the common ancestral population.
        frequencies: (populations, S) the frequency of the other base in each population.
        recurrent: (R,) whether the five bases around a position are one of the most frequent words.
    """

    reference: np.ndarray
    sites: np.ndarray
    alternative: np.ndarray
    ancestral: np.ndarray
    frequencies: np.ndarray
    recurrent: np.ndarray


@dataclass(eq=False)
class Populations(Source):
    """Simulated clients whose reads come from populations with different variants, all drawn by the
    run's seed.

    - A reference is drawn once: regions of three kinds (background, island, repeat; lengths are
      geometric with mean 60), each a Markov chain of order one over A, C, G, T.
    - A share ``variants`` of its positions vary between two bases; C and G of a pair CG do so ten
      times as often as others (Nachman and Crowell 2000, doi:10.1093/genetics/156.1.297). The
      ancestral frequency p of the second is uniform in [0.05, 0.95]; a population's is drawn from
      Beta(p (1 − F) / F, (1 − p) (1 − F) / F) with F = ``divergence`` (Balding and Nichols 1995):
      its mean is p, its variance F p (1 − p).
    - A read begins anywhere. At each varying position it has the second base with its population's
      frequency. Then each base is read as one of the other three with probability ``errors``, and
      not at all (N) with probability 0.001.
    - A position's label is ``1`` if a variant is reported there, that is if it varies in any
      population, else ``0``, as in Lucchetti et al. (2022, arXiv:2204.11017, appendix B-B).
    - In the populations ``flipped`` the labels of the most recurrent words of five bases are
      exchanged: a shift of concepts.

    NOTE[DIFF]: the paper uses reads of the 1000 Genomes Project; these are simulated, so scores
    cannot be compared. The paper flips "the label of the most recurrent genomic features" at
    random, and does not say how many; here a share ``flip`` of these positions is flipped. The
    paper encodes words of five bases by word2vec; here each position is its base.

    - Clients: pop1_1, pop1_2, pop2_1, ...: population and number.
    - Columns: p001 to p150, a base each (A, C, G, N, T).
    - Target: labels, a text of one label for each position: 1 where a variant is reported, else 0.
    - Splits: random by the run's seed, 20 % test, then 25 % of the rest validation.
    - Licence: simulated by fedlit; contains no real data.
    - Citation: D. J. Balding and R. A. Nichols (1995). A method for quantifying differentiation
      between populations at multi-allelic loci and its implications for investigating identity and
      paternity. Genetica 96:3-12.

    Args:
        populations: the number of populations.
        clients: the number of clients in each population.
        reads: the number of reads of each client.
        length: the number of bases of a read.
        reference: the number of bases of the reference.
        variants: the share of positions that vary, in [0, 1].
        divergence: F, in (0, 1): how far populations are from their common ancestor.
        errors: the probability that a base is read as another one.
        flipped: the numbers, from 1, of the populations whose labels of variants are flipped.
        flip: the share of positions at which labels are flipped, in [0, 1].
        test: the share of a client's reads that are test rows, in (0, 1).
        validation: the share of the client's other reads that are validation rows, in (0, 1).

    Example:
        >>> (first, *_) = Populations(populations=2, clients=1, reads=20, length=8, reference=100).tables(seed=0)
        >>> first.name, first.features.shape, len(first.target[0])
        ('pop1_1', (20, 8), 8)
    """

    name: ClassVar[str] = "populations"

    populations: int = 4
    clients: int = 2
    reads: int = 400
    length: int = 150
    reference: int = 20000
    variants: float = 0.02
    divergence: float = 0.1
    errors: float = 0.005
    flipped: Sequence[int] = ()
    flip: float = 0.2
    test: float = 0.2
    validation: float = 0.25

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        for key in ("variants", "errors", "flip", "divergence"):
            share = getattr(self, key)
            is_share = 0 < share < 1 or (share in (0, 1) and key != "divergence")
            expect(is_share, f"populations: {key}", "a share between 0 and 1", share)
        expect(self.reads >= 3, "populations: reads", "at least 3, one for each split", self.reads)
        are_populations = set(self.flipped) <= set(range(1, self.populations + 1))
        expected = f"numbers from 1 to {self.populations}"
        expect(are_populations, "populations: flipped", expected, self.flipped)
        is_length = 1 <= self.length <= self.reference
        expected = f"1 to {self.reference} bases"
        expect(is_length, "populations: length", expected, self.length)

    def world(self, seed: int) -> World:
        """Draw the reference, its regions and its variants."""
        rng = _generator(seed, "world")
        kinds = np.empty(0, np.int64)
        while len(kinds) < self.reference:
            kind = rng.choice(len(_SHARE), p=_SHARE)
            kinds = np.append(kinds, np.repeat(kind, rng.geometric(1 / _REGION)))
        chain = self._chain(kinds[: self.reference], rng)
        pairs = np.append((chain[:-1] == 1) & (chain[1:] == 2), False)  # A C stands before a G.
        rate = np.where(pairs | np.roll(pairs, 1), _HOT, 1.0)
        sites = np.flatnonzero(rng.random(self.reference) < self.variants * rate / rate.mean())
        alternative = (chain[sites] + rng.integers(1, 4, len(sites))) % 4
        ancestral = rng.uniform(0.05, 0.95, len(sites))
        scale = (1 - self.divergence) / self.divergence
        shape = (self.populations, len(sites))
        return World(
            reference=_CALLED[chain],
            sites=sites,
            alternative=_CALLED[alternative],
            ancestral=ancestral,
            frequencies=rng.beta(ancestral * scale, (1 - ancestral) * scale, shape),
            recurrent=self._recurrent(chain),
        )

    def _chain(self, kinds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw the bases of the reference, counted from 0, given the kind of each position."""
        steps = _NEXT.cumsum(2)
        drawn = rng.random(self.reference)
        base = int(rng.integers(4))
        chain = np.empty(self.reference, np.int64)
        for position, kind in enumerate(kinds.tolist()):
            step = np.searchsorted(steps[kind, base], drawn[position], "right")
            base = min(int(step), 3)
            chain[position] = base
        return chain

    def _recurrent(self, chain: np.ndarray) -> np.ndarray:
        """Return whether each position is the middle of one of the most recurrent words, which
        together make up the share ``flip`` of the reference.
        """
        padded = np.pad(chain, _WORD // 2, "wrap")
        windows = np.lib.stride_tricks.sliding_window_view(padded, _WORD)
        codes = windows @ 4 ** np.arange(_WORD)
        counts = np.bincount(codes)
        order = np.argsort(-counts, kind="stable")
        most_recurrent = order[counts[order].cumsum() <= self.flip * self.reference]
        return np.isin(codes, most_recurrent)

    def tables(self, seed: int) -> list[ClientTable]:
        """Draw all reads; ``seed`` draws everything."""
        world = self.world(seed)
        tables = []
        for population in range(self.populations):
            names = [f"pop{population + 1}_{number + 1}" for number in range(self.clients)]
            tables += [self._table(world, population, name, seed) for name in names]
        return check_tables(tables)

    def _table(self, world: World, population: int, client: str, seed: int) -> ClientTable:
        rng = _generator(seed, client)
        starts = rng.integers(0, self.reference - self.length + 1, self.reads)
        positions = starts[:, None] + np.arange(self.length)
        frequency = np.zeros(self.reference)
        frequency[world.sites] = world.frequencies[population]
        alternative = world.reference.copy()
        alternative[world.sites] = world.alternative
        is_alternative = rng.random(positions.shape) < frequency[positions]
        codes = np.where(is_alternative, alternative[positions], world.reference[positions])
        wrong = rng.random(codes.shape) < self.errors
        position = np.searchsorted(_CALLED, codes[wrong])
        codes[wrong] = _CALLED[(position + rng.integers(1, 4, len(position))) % 4]
        codes[rng.random(codes.shape) < _UNCALLED] = _N
        reported = np.isin(np.arange(self.reference), world.sites)
        is_flipped = population + 1 in self.flipped
        if is_flipped:
            reported = reported ^ world.recurrent
        labels = ["".join(row) for row in np.where(reported[positions], "1", "0").tolist()]
        table = table_of(self, client, codes, labels, seed)
        if not self.flipped:
            return table
        return replace(table, concept="2" if is_flipped else "1")


def _generator(seed: int, purpose: str) -> np.random.Generator:
    from fedlit.seeding import (
        derive_seed,
    )  # It imports torch, which a list of sources does without.

    return np.random.default_rng(derive_seed(seed, "populations", purpose))
