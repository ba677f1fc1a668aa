# after: Keras's example "Self-supervised contrastive learning with NNCLR": a queue of features
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
keras.utils.set_random_seed(3)
width, queue_size = 4, 24
rng = np.random.default_rng(1)
x = rng.normal(size=(48, 6)); y = rng.integers(0, 3, 48)

class NNCLR(keras.Model):
    def __init__(self):
        super().__init__()
        self.probe_accuracy = keras.metrics.SparseCategoricalAccuracy()
        self.encoder = keras.Sequential([layers.Input((6,)), layers.Dense(width, activation="relu")])
        self.projection_head = keras.Sequential([layers.Input((width,)), layers.Dense(width)])
        self.feature_queue = keras.Variable(keras.utils.normalize(keras.random.normal(shape=(queue_size, width), seed=1), axis=1, order=2), trainable=False)

    def compile(self, contrastive_optimizer, **kwargs):
        super().compile(**kwargs)
        self.contrastive_optimizer = contrastive_optimizer

    def nearest_neighbour(self, projections):
        support_similarities = ops.matmul(projections, ops.transpose(self.feature_queue))
        nn_projections = ops.take(self.feature_queue, ops.argmax(support_similarities, axis=1), axis=0)
        return projections + ops.stop_gradient(nn_projections - projections)

    def train_step(self, data):
        images, _ = data
        with tf.GradientTape() as tape:
            p = keras.utils.normalize(self.projection_head(self.encoder(images)), axis=1, order=2)
            q = keras.utils.normalize(self.projection_head(self.encoder(ops.sin(images))), axis=1, order=2)
            loss = -ops.mean(ops.sum(self.nearest_neighbour(p) * q, axis=1))
        v = self.encoder.trainable_weights + self.projection_head.trainable_weights
        self.contrastive_optimizer.apply_gradients(zip(tape.gradient(loss, v), v))
        self.feature_queue.assign(ops.concatenate([p, self.feature_queue[: -ops.shape(p)[0]]], axis=0))
        return {"c_loss": loss}

model = NNCLR()
model.compile(contrastive_optimizer=keras.optimizers.Adam(0.01))
h = model.fit(x, y, batch_size=12, epochs=3, shuffle=False, verbose=0)
print("c_loss =", h.history["c_loss"][-1], " queue =", float(ops.sum(ops.abs(model.feature_queue))), " q0 =", float(model.feature_queue[0, 0]))
print("weights =", sum(float(np.abs(w).sum()) for w in model.encoder.get_weights()))
