"""The workloads of workloads.py in PyTorch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import workloads
from torch import nn
from workloads import ENTITIES, FACTORS, PIXELS, TOWER, TRANSFORMERS, Sizes


class _Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, length = sizes.width, sizes.length
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, sizes.heads, batch_first=True)
        self.dense = nn.Sequential(
            nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        )
        hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        self.register_buffer("hidden", hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, attn_mask=self.hidden, need_weights=False)[0]
        return x + self.dense(self.second(x))


class _Decoder(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, sizes.width)
        self.blocks = nn.Sequential(*[_Block(sizes) for _ in range(sizes.blocks)])
        self.last = nn.Linear(sizes.width, sizes.words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.words(words))).flatten(0, 1)


class _Encoder(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes.width
        self.words = nn.Embedding(sizes.words, width)
        self.positions = nn.Parameter(torch.rand(sizes.length, width) / 10 - 0.05)
        self.norm = nn.LayerNorm(width)
        block = nn.TransformerEncoderLayer(
            width, sizes.heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.blocks = nn.TransformerEncoder(block, sizes.blocks, enable_nested_tensor=False)
        self.last = nn.Sequential(
            nn.Linear(width, width), nn.Tanh(), nn.Linear(width, workloads.KINDS)
        )

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.norm(self.words(words) + self.positions))
        return self.last(x[:, 0])


class _Bottleneck(nn.Module):
    """A block of ResNet50, with the stride where Keras has it: in the first convolution."""

    def __init__(self, inner: int, filters: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *(nn.Conv2d(inner, filters, 1, stride), nn.BatchNorm2d(filters), nn.ReLU()),
            *(nn.Conv2d(filters, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()),
            *(nn.Conv2d(filters, 4 * filters, 1), nn.BatchNorm2d(4 * filters)),
        )
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inner != 4 * filters:
            one = nn.Conv2d(inner, 4 * filters, 1, stride)
            self.short = nn.Sequential(one, nn.BatchNorm2d(4 * filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.path(x) + self.short(x))


def _resnet50(classes: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU()]
    parts.append(nn.MaxPool2d(3, 2, 1))
    inner = 64
    for filters, many in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(many):
            stride = 2 if filters > 64 and i == 0 else 1
            parts.append(_Bottleneck(inner, filters, stride))
            inner = 4 * filters
    last = nn.Linear(inner, classes)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


class _Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            [nn.Embedding(ENTITIES, FACTORS, sparse=True) for _ in range(2)]
        )
        self.towers = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(FACTORS, TOWER), nn.ReLU(), nn.Linear(TOWER, FACTORS))
                for _ in range(2)
            ]
        )

    def forward(self, ids: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        users, items = (
            tower(table(one))
            for tower, table, one in zip(self.towers, self.tables, ids, strict=True)
        )
        return (users * items).sum(1, keepdim=True)


def model(name: str, classes: int = workloads.CLASSES) -> tuple[nn.Module, nn.Module]:
    """Returns a workload's model and its loss; `classes` are those of ResNet50's pictures."""
    if name == "encoder":
        return _Encoder(TRANSFORMERS[name]), nn.CrossEntropyLoss()
    if name in TRANSFORMERS:
        return _Decoder(TRANSFORMERS[name]), nn.CrossEntropyLoss()
    if name in PIXELS:
        return _resnet50(classes), nn.CrossEntropyLoss()
    if name == "recommender":
        return _Recommender(), nn.BCEWithLogitsLoss()
    cnn = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 26 * 26, 128), nn.ReLU(),
        nn.Linear(128, 10),
    )  # fmt: skip
    return cnn, nn.CrossEntropyLoss()


def optimizer(name: str, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Returns a workload's optimizer."""
    if name in ("encoder", "decoder"):
        return torch.optim.Adam(weights, workloads.ADAM_RATE)
    momentum = workloads.MOMENTUM if name in PIXELS else 0.0
    return torch.optim.SGD(weights, workloads.RATE, momentum=momentum)


def batch(name: str, inputs, labels, rows) -> tuple:
    """Returns those samples as the model and its loss take them."""
    y = torch.from_numpy(labels[rows])
    if name == "recommender":
        return tuple(torch.from_numpy(column[rows]).long() for column in inputs), y
    x = torch.from_numpy(inputs[rows])
    if name == "encoder":
        return x.long(), y
    if name in TRANSFORMERS:
        return x.long(), y.long().flatten()
    return x.permute(0, 3, 1, 2), y
