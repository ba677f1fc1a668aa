# after: adversarial training (FGSM, FGM, an embedding's): the loss's gradients by the inputs move these
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(22)
rng = np.random.default_rng(22)
y = np.arange(75) % 3
x = rng.normal(size=(75, 6)); x[np.arange(75), y] += 1.5


class FGM(keras.Model):
    mode = "l2"

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y_pred = self(x, training=True)
                loss = self.compute_loss(x, y, y_pred)
            g = inner.gradient(loss, x)
            if self.mode == "raw":
                delta = 5.0 * g
            elif self.mode == "sign":
                delta = 0.1 * tf.sign(g)
            else:
                delta = 0.5 * g / (tf.norm(g, axis=-1, keepdims=True) + 1e-12)
            adv = self(x + tf.stop_gradient(delta), training=True)
            total = loss + self.compute_loss(x, y, adv)
        for m in self.metrics:
            m.update_state(total) if m.name == "loss" else m.update_state(y, y_pred)
        grads = tape.gradient(total, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {m.name: m.result() for m in self.metrics}


for mode in ("l2", "sign", "raw"):
    keras.utils.set_random_seed(5)
    inp = keras.Input((6,))
    model = FGM(inp, keras.layers.Dense(3)(keras.layers.Dense(12, "tanh")(inp)))
    model.mode = mode
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    h = model.fit(x, y, epochs=2, batch_size=20, verbose=0, shuffle=False)
    print(mode, "loss =", h.history["loss"][-1])
    print(mode, "weights =", float(sum(np.abs(w).sum() for w in model.get_weights())))


class EmbeddingFGM(keras.Model):
    """As in NLP competitions: the table is moved along its gradient, and put back."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred)
        table = self.layers[1].embeddings
        g = tape.gradient(loss, [table.value if hasattr(table, "value") else table])[0]
        g = tf.convert_to_tensor(g)
        delta = 0.3 * g / (tf.sqrt(tf.reduce_sum(g**2)) + 1e-8)
        table.assign_add(delta)
        with tf.GradientTape() as tape2:
            y_pred = self(x, training=True)
            new_loss = self.compute_loss(x, y, y_pred)
        for m in self.metrics:
            m.update_state(loss) if m.name == "loss" else m.update_state(y, y_pred)
        grads = tape2.gradient(new_loss, self.trainable_variables)
        table.assign_sub(delta)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {m.name: m.result() for m in self.metrics}


tokens = rng.integers(0, 20, (75, 5))
inp = keras.Input((5,), dtype="int32")
z = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(20, 6)(inp))
model = EmbeddingFGM(inp, keras.layers.Dense(3)(z))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
h = model.fit(tokens, y, epochs=2, batch_size=20, verbose=0, shuffle=False)
print("embedding loss =", h.history["loss"][-1])
print("embedding weights =", float(sum(np.abs(w).sum() for w in model.get_weights())))
