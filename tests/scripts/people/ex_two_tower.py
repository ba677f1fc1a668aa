# after: TensorFlow Recommenders' basic retrieval, two towers, negatives from the batch
# expects: near 0.5: the negatives of a row are the others of its replica's part of the batch
# shows: what .* computes is neither a mean nor a sum
import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(44)
rng = np.random.default_rng(4)
n_users, n_movies = 50, 80
unique_user_ids = [f"user_{i}" for i in range(n_users)]
unique_movie_titles = [f"Movie {i}" for i in range(n_movies)]
user = rng.integers(n_users, size=600)
movie = (user + rng.integers(0, 6, 600)) % n_movies
ratings = tf.data.Dataset.from_tensor_slices({
    "user_id": [unique_user_ids[i] for i in user],
    "movie_title": [unique_movie_titles[i] for i in movie],
})
shuffled = ratings.shuffle(1000, seed=42, reshuffle_each_iteration=False)
train = shuffled.take(480).batch(96).cache()
test = shuffled.skip(480).take(120).batch(60).cache()


class TwoTower(keras.Model):
    def __init__(self, query, candidate):
        super().__init__()
        self.user_model = query
        self.movie_model = candidate
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.loss_fn = keras.losses.CategoricalCrossentropy(from_logits=True)

    def call(self, features):
        return self.user_model(features["user_id"]), self.movie_model(features["movie_title"])

    def scores_loss(self, features):
        query, candidate = self(features)
        scores = tf.matmul(query, candidate, transpose_b=True)
        labels = tf.eye(tf.shape(scores)[0], dtype=scores.dtype)
        return self.loss_fn(labels, scores)

    def train_step(self, features):
        with tf.GradientTape() as tape:
            loss = self.scores_loss(features)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, features):
        self.loss_tracker.update_state(self.scores_loss(features))
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker]


def tower(vocabulary):
    return keras.Sequential([
        layers.StringLookup(vocabulary=vocabulary, mask_token=None),
        layers.Embedding(len(vocabulary) + 1, 8),
    ])


with strategy.scope():
    model = TwoTower(tower(unique_user_ids), tower(unique_movie_titles))
    model.compile(optimizer=keras.optimizers.Adagrad(0.5))
history = model.fit(train, epochs=3, verbose=0)
print("loss =", history.history["loss"][-1])
print("test loss =", model.evaluate(test, verbose=0, return_dict=True)["loss"])
