"""What each client reaches alone with scikit-learn's ExtraTrees, on exactly the rows and columns that fedlit trains on.

python benchmarks/go_alone.py covertype_gl.yaml
"""

from __future__ import annotations

import sys

import torch
from sklearn.ensemble import ExtraTreesClassifier

import fedlit
from fedlit.metrics import classification_metrics


def main(config: str) -> None:
    """Print test AUROC, AUPRC and balanced accuracy per client."""
    data = fedlit.load(config).data
    data.setup()
    for client in data.clients:
        test = client.sites[client.spec.name]["test"]
        model = ExtraTreesClassifier(500, random_state=0, n_jobs=-1).fit(client.train.x, client.train.y)
        scores = classification_metrics(torch.from_numpy(model.predict_proba(test.x)).float(), test.y)
        shown = "  ".join(f"{name} {100 * float(scores[name]):.2f}" for name in ("auroc", "auprc", "balanced_accuracy"))
        print(f"{client.spec.name:<12}{shown}")


if __name__ == "__main__":
    main(*sys.argv[1:])
