# after: Keras's examples "Semi-supervised image classification" (FixMatch, AdaMatch): zipped datasets
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(8)
rng = np.random.default_rng(8)
centers = rng.normal(size=(3, 6)) * 2
y = np.arange(90) % 3
x = centers[y] + rng.normal(size=(90, 6))
weak = x + rng.normal(size=x.shape) * 0.05
strong = x + rng.normal(size=x.shape) * 0.5
labeled = tf.data.Dataset.from_tensor_slices((x[:24], y[:24])).repeat().batch(6)
unlabeled = tf.data.Dataset.zip((
    tf.data.Dataset.from_tensor_slices(weak).batch(18),
    tf.data.Dataset.from_tensor_slices(strong).batch(18)))
final = tf.data.Dataset.zip((labeled, unlabeled)).prefetch(tf.data.AUTOTUNE)


class FixMatch(keras.Model):
    def __init__(self, model, tau=0.6):
        super().__init__()
        self.model = model
        self.tau = tau
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.kept_tracker = keras.metrics.Mean(name="kept")

    @property
    def metrics(self):
        return [self.loss_tracker, self.kept_tracker]

    def compile(self, optimizer, sup_loss, unsup_loss, **kwargs):
        super().compile(**kwargs)
        self.optimizer = optimizer
        self.sup_loss = sup_loss
        self.unsup_loss = unsup_loss

    def train_step(self, data):
        (x, y), (weak, strong) = data
        with tf.GradientTape() as tape:
            guess = tf.nn.softmax(self.model(weak, training=True))
            mask = tf.cast(tf.reduce_max(guess, 1) >= self.tau, guess.dtype)
            logits = self.model(tf.concat([x, strong], 0), training=True)
            n = tf.shape(x)[0]
            sup = self.sup_loss(y, logits[:n])
            pseudo = tf.stop_gradient(tf.argmax(guess, 1))
            unsup = tf.reduce_mean(
                keras.losses.sparse_categorical_crossentropy(pseudo, logits[n:], True) * mask)
            loss = sup + 0.5 * unsup
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))
        self.loss_tracker.update_state(loss)
        self.kept_tracker.update_state(mask)
        return {m.name: m.result() for m in self.metrics}


network = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(12, activation="relu"), keras.layers.Dense(3)])
trainer = FixMatch(network)
trainer.compile(
    optimizer=keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 30)),
    sup_loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), unsup_loss=None)
history = trainer.fit(final, epochs=4, verbose=0)
for name in ("loss", "kept"):
    for value in history.history[name]:
        print(name, "=", value)
network.compile(loss=keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
loss, accuracy = network.evaluate(x, y, verbose=0)
print(f"test loss = {loss}, accuracy = {accuracy}")
