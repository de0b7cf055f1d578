"""Small FASTA files in the layout that genomes_fedgmcc.yaml reads: labels of each position in a
read's header."""

from pathlib import Path

import numpy as np

POPULATIONS = ("asia", "africa", "europe")


def records(reads: int, length: int, draw: np.random.Generator) -> str:
    """Made-up reads; a C before a G is a variant."""
    lines = []
    for number in range(reads):
        read = "".join(draw.choice([*"ACGT"], length))
        labels = "".join("1" if read[place : place + 2] == "CG" else "0" for place in range(length))
        lines.append(f">r{number} labels={labels}\n{read}\n")
    return "".join(lines)


def write_genomes(folder: Path, reads: int = 12, length: int = 150) -> None:
    """One file for each population, and one of all persons for the artificial partition."""
    draw = np.random.default_rng(0)
    (folder / "genomes").mkdir(parents=True, exist_ok=True)
    for population in POPULATIONS:
        (folder / "genomes" / f"{population}.fasta").write_text(records(reads, length, draw))
    (folder / "genomes" / "sensg_s.fasta").write_text(records(20 * reads, length, draw))
