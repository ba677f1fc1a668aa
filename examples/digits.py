"""Trains a small CNN on handwritten digits, on one worker or many.

    python examples/digits.py
    tfrun -n 2 examples/digits.py --epochs 10

The only line about distribution is `tfrun.strategy()`. The batch size is the global one: it is
divided among the workers, and the result does not depend on how many there are.
"""

from __future__ import annotations

import argparse

import keras
import numpy as np

import tfrun


def load(path: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns images (n, 28, 28, 1) of 0 to 1, float32, and labels (n,) of 0 to 9."""
    if path:  # the file of keras.datasets.mnist
        with np.load(path) as arrays:
            x, y = arrays["x_train"] / 255.0, arrays["y_train"]
    else:
        from sklearn.datasets import load_digits

        digits = load_digits()
        x, y = resize(digits.images / 16.0, 28), digits.target
    return x[..., None].astype("float32"), y.astype("int64")


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """Scales square images (n, side, side) to (n, size, size), bilinearly."""
    side = images.shape[1]
    places = np.linspace(0, side - 1, size)
    # Row i holds how much each of the old rows contributes to new row i.
    weights = np.maximum(0, 1 - np.abs(places[:, None] - np.arange(side)))
    return weights @ images @ weights.T


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="a mnist.npz instead of scikit-learn's digits")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=128, help="global: over all workers")
    parser.add_argument("--save", help="write the trained model there, as .keras")
    args = parser.parse_args()

    keras.utils.set_random_seed(1)
    x, y = load(args.data)
    order = np.random.default_rng(1).permutation(len(x))
    train, validation = np.split(order, [int(0.8 * len(x))])

    with tfrun.strategy().scope():
        model = build_model()
        model.compile(
            optimizer=keras.optimizers.Adam(1e-3),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )

    model.fit(
        x[train],
        y[train],
        batch_size=args.batch_size,
        epochs=args.epochs,
        validation_data=(x[validation], y[validation]),
    )
    loss, accuracy = model.evaluate(x[validation], y[validation], verbose=0)
    if args.save:
        model.save(args.save)
    print(f"validation accuracy {accuracy:.4f}, loss {loss:.4f}")


if __name__ == "__main__":
    main()
