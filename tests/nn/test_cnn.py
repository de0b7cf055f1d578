"""The small CNN, against the sums that a convolution is."""

import numpy as np
import torch
from scipy.signal import correlate2d

from fedlit import CNN


def test_it_is_two_convolutions_and_a_dense_layer() -> None:
    torch.manual_seed(0)
    network = CNN(25, 3, channels=(2, 4), white=8.0)
    state = {name: value.detach().numpy() for name, value in network.state_dict().items()}
    image = np.random.default_rng(0).uniform(0, 8, 25).astype(np.float32)
    maps = [image.reshape(5, 5) / 8]
    for layer, stride in (("encoder.1", 1), ("core.0", 2)):
        weight, bias = state[f"{layer}.weight"], state[f"{layer}.bias"]
        maps = [
            np.maximum(sum(correlate2d(own, w, "same") for own, w in zip(maps, kernels, strict=True)) + b, 0)[
                ::stride, ::stride
            ]
            for kernels, b in zip(weight, bias, strict=True)
        ]
    expected = state["head.weight"] @ np.concatenate([own.ravel() for own in maps]) + state["head.bias"]
    found = network(torch.from_numpy(image)[None])[0].detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
