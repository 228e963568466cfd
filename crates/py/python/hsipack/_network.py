"""A small network that stands in for training when the command ``hsipack`` measures on a GPU."""

from __future__ import annotations

import torch
from torch import nn

FEATURES = 16
CLASSES = 8
RATE = 1e-3
MOMENTUM = 0.9


class Network:
    """A convolution over the spectrum of each pixel, a ReLU, the mean over all pixels, and a linear
    layer. It is trained by gradient descent with momentum on meaningless labels. The crate
    hsipack-measure has the same network for the CPU, without torch.
    """

    def __init__(self, bands: int, device: torch.device) -> None:
        self.layers = nn.Sequential(
            nn.Conv2d(bands, FEATURES, kernel_size=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(FEATURES, CLASSES),
        ).to(device)
        # torch.optim would first import torch's compiler, which takes as long as importing torch.
        self.weights = list(self.layers.parameters())
        self.moving = [torch.zeros_like(weights) for weights in self.weights]

    def train(self, image: torch.Tensor) -> torch.Tensor:
        """Does one training step on images (B, C, H, W). Returns the loss before the step, which a
        GPU may still be computing.
        """
        labels = torch.arange(image.shape[0], device=image.device) % CLASSES
        loss = nn.functional.cross_entropy(self.layers(image.float()), labels)
        gradients = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            for weights, moving, gradient in zip(self.weights, self.moving, gradients, strict=True):
                moving.mul_(MOMENTUM).add_(gradient)
                weights.sub_(moving, alpha=RATE)
        return loss.detach()
