# after: Keras's example "Image similarity estimation using a Siamese Network with a triplet loss"
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(88)
X, y = load_digits(return_X_y=True)
X = X / 16.0
rng = np.random.RandomState(seed=32)


def triplets(n):
    for _ in range(n):
        a = rng.randint(len(y))
        positive = rng.choice(np.flatnonzero(y == y[a]))
        negative = rng.choice(np.flatnonzero(y != y[a]))
        yield X[a], X[positive], X[negative]


anchor, positive, negative = (np.array(part) for part in zip(*triplets(240)))
dataset = tf.data.Dataset.zip(tuple(
    tf.data.Dataset.from_tensor_slices(part) for part in (anchor, positive, negative)))
train_dataset = dataset.take(192).batch(32, drop_remainder=False).prefetch(tf.data.AUTOTUNE)
val_dataset = dataset.skip(192).batch(32, drop_remainder=False).prefetch(tf.data.AUTOTUNE)


class DistanceLayer(layers.Layer):
    def call(self, anchor, positive, negative):
        ap_distance = ops.sum(tf.square(anchor - positive), -1)
        an_distance = ops.sum(tf.square(anchor - negative), -1)
        return (ap_distance, an_distance)


class SiameseModel(keras.Model):
    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network = siamese_network
        self.margin = margin
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, inputs):
        return self.siamese_network(inputs)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self._compute_loss(data)
        gradients = tape.gradient(loss, self.siamese_network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.siamese_network.trainable_weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data):
        loss = self._compute_loss(data)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def _compute_loss(self, data):
        ap_distance, an_distance = self.siamese_network(data)
        loss = ap_distance - an_distance
        return ops.maximum(loss + self.margin, 0.0)

    @property
    def metrics(self):
        return [self.loss_tracker]


with strategy.scope():
    embedding = keras.Sequential(
        [keras.Input((64,)), layers.Dense(24, activation="relu"), layers.Dense(8)], name="Embedding")
    ins = [keras.Input(name=name, shape=(64,)) for name in ("anchor", "positive", "negative")]
    distances = DistanceLayer()(*(embedding(i) for i in ins))
    siamese_network = keras.Model(inputs=ins, outputs=distances)
    siamese_model = SiameseModel(siamese_network)
    siamese_model.compile(optimizer=keras.optimizers.Adam(0.001), weighted_metrics=[])
history = siamese_model.fit(train_dataset, epochs=2, validation_data=val_dataset, verbose=0)
print("loss =", history.history["loss"][-1])
print("val_loss =", history.history["val_loss"][-1])
cosine_similarity = keras.losses.CosineSimilarity()
a, p, n = (embedding(part[:20]) for part in (anchor, positive, negative))
print("Positive similarity:", float(cosine_similarity(a, p)))
print("Negative similarity:", float(cosine_similarity(a, n)))
print("Weights:", float(sum(np.abs(w).sum() for w in embedding.get_weights())))
