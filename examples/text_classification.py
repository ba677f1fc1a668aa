"""Tells which module of Python a sentence documents; it names neither tfrun nor a strategy.

    python examples/text_classification.py
    tfrun -n 2 examples/text_classification.py --epochs 20

The sentences are the documentation of Python's own modules, so nothing has to be downloaded. Words
become numbers by a TextVectorization, which every worker adapts to the same texts.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re

import keras
import numpy as np

MODULES = ("asyncio", "decimal", "email", "logging", "sqlite3", "threading", "tkinter", "unittest")
WORDS, LENGTH = 2000, 24


def sentences(module: str) -> list[str]:
    """Those of the docstrings of a module and of what is in it, of five words or more."""
    try:
        found = importlib.import_module(module)
    except ImportError:  # such as tkinter, which some systems pack by itself
        return []
    things = [found, *(thing for _, thing in sorted(vars(found).items()) if callable(thing))]
    things += [
        inner for thing in things if inspect.isclass(thing) for inner in vars(thing).values()
    ]
    texts = {inspect.getdoc(thing) or "" for thing in things}
    parts = {" ".join(part.split()) for text in texts for part in re.split(r"(?<=[.:])\s", text)}
    return sorted(part for part in parts if len(part.split()) >= 5)


def load() -> tuple[np.ndarray, np.ndarray, int]:
    """Texts, their classes, int64, and how many classes there are."""
    found = [texts for module in MODULES if len(texts := sentences(module)) >= 20]
    labels = np.concatenate([np.full(len(texts), i) for i, texts in enumerate(found)])
    return np.array([text for texts in found for text in texts]), labels, len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    keras.utils.set_random_seed(1)
    texts, labels, classes = load()
    order = np.random.default_rng(1).permutation(len(texts))
    held_out, train = np.split(order, [len(texts) // 5])

    vectors = keras.layers.TextVectorization(max_tokens=WORDS, output_sequence_length=LENGTH)
    vectors.adapt(texts[train])
    words = np.asarray(vectors(texts))

    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int64"),
            keras.layers.Embedding(WORDS, 32, mask_zero=True),
            keras.layers.Bidirectional(keras.layers.LSTM(16)),
            keras.layers.Dense(classes),
        ]
    )
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        words[train],
        labels[train],
        batch_size=args.batch_size,
        epochs=args.epochs,
        validation_data=(words[held_out], labels[held_out]),
        verbose=2,
    )
    _, accuracy = model.evaluate(words[held_out], labels[held_out], verbose=0)
    print(f"{len(texts)} sentences of {classes} modules: validation accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
