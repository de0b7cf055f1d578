"""What is predicted: outputs, labels as tensors, loss, scores."""

from fedlit.tasks.base import Score, Task, by_name

__all__ = ["SCORES", "Score", "Task"]

SCORES: dict[str, Score] = by_name(
    [
        Score("auroc", "AUROC", low=0.0, high=1.0),
        Score("auprc", "AUPRC", low=0.0, high=1.0),
        Score("balanced_accuracy", "Balanced accuracy", low=0.0, high=1.0),
        Score("accuracy", "Accuracy", low=0.0, high=1.0),
        Score("f1", "F1", low=0.0, high=1.0),
        Score("weighted_f1", "Weighted F1", low=0.0, high=1.0),
        Score("auroc_ovo", "AUROC, one versus one", low=0.0, high=1.0, test_only=True),
        Score("rmse", "RMSE", higher_is_better=False, percent=False, low=0.0),
        Score("mae", "MAE", higher_is_better=False, percent=False, low=0.0),
        Score("r2", "R²", percent=False, high=1.0),
    ]
)
