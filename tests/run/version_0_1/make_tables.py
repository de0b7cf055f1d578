"""Three growers' tables, of scikit-learn's wine recognition data."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

here = Path(__file__).parent
wine = load_wine(as_frame=True)
rows = wine.data[["alcohol", "malic_acid", "flavanoids", "proline"]].copy()
rows["colour"] = np.select(
    [wine.data["color_intensity"] < 3.5, wine.data["color_intensity"] < 6], ["pale", "clear"], "deep"
)
rows["cultivar"] = wine.target.map({0: "barolo", 1: "grignolino", 2: "barbera"})
rows = rows.sample(frac=1, random_state=0).reset_index(drop=True)
rows.loc[::11, "colour"] = None
rows.loc[::13, "malic_acid"] = None
for number, name in enumerate(("asti", "cuneo", "torino")):
    own = rows.iloc[59 * number : 59 * (number + 1)].copy()
    if name == "cuneo":
        own["proline"] *= 10  # another unit, for the corrections
    own.to_csv(here / f"{name}.csv", index=False)
