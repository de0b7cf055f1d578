"""Write the rows of a study for AutoGluon; in fedlit's environment: ``write_rows.py STUDY FOLDER --seeds 8:10``."""

from __future__ import annotations

import argparse

from fedlit.study.parse import load_study
from fedlit.study.rows import write_rows
from fedlit.study.seeds import parse_seeds


def main() -> None:
    """As the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study")
    parser.add_argument("folder")
    parser.add_argument("--seeds", default="8:10")
    parser.add_argument("--scenario")
    asked = parser.parse_args()
    study = load_study(asked.study)
    study = study.of(asked.scenario) if asked.scenario else study
    for path in write_rows(study, asked.folder, parse_seeds(asked.seeds)):
        print(path)


if __name__ == "__main__":
    main()
