"""A small network, which stands for training where the command ``hsipack`` measures on a GPU."""

from __future__ import annotations

import torch
from torch import nn

FEATURES = 16
CLASSES = 8


class Network:
    """A convolution over the spectrum of each pixel, a ReLU, the mean over all pixels, a linear
    layer; trained by gradient descent with momentum on labels that mean nothing. The same as the
    network of hsipack-measure, which trains on the CPU without torch.
    """

    def __init__(self, bands: int, device: torch.device) -> None:
        self.layers = nn.Sequential(
            nn.Conv2d(bands, FEATURES, kernel_size=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(FEATURES, CLASSES),
        ).to(device)
        self.optimizer = torch.optim.SGD(self.layers.parameters(), lr=1e-3, momentum=0.9)

    def train(self, image: torch.Tensor) -> torch.Tensor:
        """Trains on images (B, C, H, W); gives the loss before, which is still to be computed on a
        GPU.
        """
        labels = torch.arange(image.shape[0], device=image.device) % CLASSES
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.layers(image.float()), labels)
        torch.autograd.backward(loss)
        self.optimizer.step()
        return loss.detach()
