"""Trains a two-tower recommender on synthetic clicks, on parameter servers or without.

    python examples/recommender.py
    tfrun -n 2 --ps 2 examples/recommender.py --epochs 4

Each user and each item has an embedding; the large ones are sharded over the servers. Who clicks on
what follows a model that is known, so the best AUC that there is can be printed beside the one that
was reached.
"""

from __future__ import annotations

import argparse

import keras
import numpy as np
import tensorflow as tf

import tfrun

Clicks = tuple[np.ndarray, np.ndarray, np.ndarray]
KINDS = 4  # numbers that describe a user's taste, and an item


def clicks(users: int, items: int, samples: int, seed: int) -> tuple[Clicks, np.ndarray]:
    """Draws clicks.

    Returns:
      Users, items (int32) and clicks (0 or 1, float32), each of shape [samples]; and the
      probability of each click, float64.
    """
    taste = np.random.default_rng(0)
    user_taste = taste.normal(size=(users, KINDS))
    item_taste = taste.normal(size=(items, KINDS))
    drawn = np.random.default_rng(seed)
    user, item = drawn.integers(users, size=samples), drawn.integers(items, size=samples)
    probability = 1 / (1 + np.exp(1 - 1.5 * (user_taste[user] * item_taste[item]).sum(1)))
    clicked = drawn.random(samples) < probability
    found = user.astype("int32"), item.astype("int32"), clicked.astype("float32")
    return found, probability


def two_towers(users: int, items: int, size: int) -> keras.Model:
    """Returns the model: (user, item), each of shape [batch], to the logit of a click."""
    user, item = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    user_vector = keras.layers.Embedding(users, size, name="users")(user)
    item_vector = keras.layers.Embedding(items, size, name="items")(item)
    # A term for how much each clicks, and is clicked on, at all.
    dot = keras.layers.Dot(axes=1)([user_vector, item_vector])
    return keras.Model([user, item], keras.layers.Dense(1)(dot))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=8, help="of an embedding")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=512)
    args = parser.parse_args()

    keras.utils.set_random_seed(1)
    (user, item, clicked), _ = clicks(args.users, args.items, args.samples, seed=1)
    seen, chances = clicks(args.users, args.items, args.samples // 5, seed=2)

    on_servers = tfrun.world().role == "chief"
    partitioners = tf.distribute.experimental.partitioners
    shard = {"variable_partitioner": partitioners.MinSizePartitioner(max_shards=4)}
    with tfrun.strategy(**shard if on_servers else {}).scope():
        model = two_towers(args.users, args.items, args.size)
        model.compile(
            # A batch's mean has little of any row: its gradients are far below the default's 0.1.
            optimizer=keras.optimizers.Adagrad(0.1, initial_accumulator_value=1e-6),
            loss=keras.losses.BinaryCrossentropy(from_logits=True),
            metrics=[keras.metrics.AUC(from_logits=True, name="auc")],
        )
    history = model.fit((user, item), clicked, batch_size=args.batch_size, epochs=args.epochs)
    found = model.evaluate(seen[:2], seen[2], batch_size=4096, verbose=0, return_dict=True)
    best = keras.metrics.AUC()
    best.update_state(seen[2], chances)
    print(f"AUC {found['auc']:.4f} of {float(best.result()):.4f}, {len(history.epoch)} epochs")


if __name__ == "__main__":
    main()
