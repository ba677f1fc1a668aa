"""The workloads of workloads.py in PyTorch."""

from __future__ import annotations

import torch
from torch import nn
from workloads import BLOCKS, ENTITIES, FACTORS, HEADS, LENGTH, TOWER, WIDTH, WORDS


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.dense = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)
        )
        hidden = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)
        self.register_buffer("hidden", hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        x = x + self.attention(y, y, y, attn_mask=self.hidden, need_weights=False)[0]
        return x + self.dense(self.second(x))


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*[_Block() for _ in range(BLOCKS)])
        self.last = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.last(self.blocks(self.words(words))).flatten(0, 1)


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


def model(name: str) -> tuple[nn.Module, nn.Module]:
    """Returns a workload's model and its loss."""
    if name == "transformer":
        return _Transformer(), nn.CrossEntropyLoss()
    if name == "recommender":
        return _Recommender(), nn.BCEWithLogitsLoss()
    cnn = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 26 * 26, 128), nn.ReLU(),
        nn.Linear(128, 10),
    )  # fmt: skip
    return cnn, nn.CrossEntropyLoss()


def batch(name: str, inputs, labels, rows) -> tuple:
    """Returns those samples as the model and its loss take them."""
    y = torch.from_numpy(labels[rows])
    if name == "recommender":
        return tuple(torch.from_numpy(column[rows]).long() for column in inputs), y
    x = torch.from_numpy(inputs[rows])
    if name == "transformer":
        return x.long(), y.long().flatten()
    return x.permute(0, 3, 1, 2), y
