"""What is predicted: outputs, labels as tensors, loss, scores."""
