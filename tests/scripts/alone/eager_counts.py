# after: models that run eagerly, and decide in Python what a step does: a critic's turns, a schedule
# expects: equal
# shows: Using MultiWorkerMirrored eagerly has significant overhead
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(51)
rng = np.random.default_rng(51)
x = rng.normal(size=(40, 5)).astype("float32")
y = (x[:, :1] - x[:, 1:2]).astype("float32")
decisions = {"updates": 0}


class Turns(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(6, "tanh")
        self.second = keras.layers.Dense(1)
        self.turn = 0
        self.weight = 1.0

    def call(self, x, training=False):
        return self.second(self.first(x))

    def train_step(self, data):
        x, y = data
        self.turn += 1
        scale = 1.0 if self.turn % 3 == 0 else 0.2
        with tf.GradientTape() as tape:
            loss = self.weight * self.compute_loss(x, y, self(x, training=True))
        gradients = [scale * one for one in tape.gradient(loss, self.trainable_variables)]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        decisions["updates"] += len(gradients)
        if self.turn % 4 == 0:
            self.weight *= 0.9
        return {"loss": loss}


model = Turns()
model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=True)
model(x[:1])
for call in range(2):
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    print(f"fit {call} turn = {model.turn} weight = {model.weight:.9g}")
    print(f"fit {call} updates = {decisions['updates']}")
    print(f"fit {call} model = {sum(np.abs(v).sum() for v in model.get_weights()):.9g}")
