# after: Keras's example "Model interpretability with Integrated Gradients"; probing a trained model
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.metrics import confusion_matrix, f1_score

keras.utils.set_random_seed(41)
rng = np.random.default_rng(41)
x = rng.normal(size=(48, 6)).astype("float32")
y = (x[:, 0] > 0).astype("int64")


class MetricsCallback(keras.callbacks.Callback):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y
        self.best_weights, self.best = None, -1.0

    def on_epoch_end(self, epoch, logs=None):
        predicted = self.model.predict(self.x, verbose=0).argmax(1)
        score = f1_score(self.y, predicted)
        logs["f1"] = score
        loss = self.model.evaluate(self.x, self.y, verbose=0)
        print(f"f1 = {score:.6f}")
        print(f"held out = {loss:.7f}")
        if score > self.best:
            self.best, self.best_weights = score, self.model.get_weights()
        if epoch == 1:
            self.model.optimizer.learning_rate = 0.05
        if epoch == 2:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        self.model.set_weights(self.best_weights)


inputs = keras.Input((6,))
h = layers.Dense(5, "tanh", name="features")(inputs)
model = keras.Model(inputs, layers.Dense(2, "softmax")(h))
print(f"untrained = {float(tf.reduce_sum(model(x)[:, 0])):.7f}")
model.compile("adam", "sparse_categorical_crossentropy")
history = model.fit(x[:36], y[:36], batch_size=12, epochs=6, shuffle=False, verbose=0, callbacks=[MetricsCallback(x[36:], y[36:])])
print(f"epochs = {len(history.history['loss'])}")
print(f"history f1 = {history.history['f1'][-1]:.6f}")


def get_gradients(img_input, top_pred_idx):
    with tf.GradientTape() as tape:
        tape.watch(img_input)
        preds = model(img_input)
        top_class = preds[:, top_pred_idx]
    return tape.gradient(top_class, img_input)


@tf.function
def traced_gradients(values):
    with tf.GradientTape() as tape:
        tape.watch(values)
        top = model(values)[:, 1]
    return tape.gradient(top, values)


sample = tf.constant(x[:4])
print(f"gradients = {float(tf.reduce_sum(tf.abs(get_gradients(sample, 1)))):.8f}")
print(f"traced = {float(tf.reduce_sum(tf.abs(traced_gradients(sample)))):.8f}")
grad_model = keras.Model(model.inputs, [model.get_layer("features").output, model.output])
with tf.GradientTape() as tape:
    features, preds = grad_model(sample)
    channel = preds[:, 0]
grads = tape.gradient(channel, features)
print(f"cam = {float(tf.reduce_sum(tf.abs(grads))):.8f}")
noise = tf.Variable(tf.zeros((1, 6)))
adam = keras.optimizers.SGD(0.5)
for _ in range(3):
    with tf.GradientTape() as tape:
        loss = -tf.reduce_mean(model(sample + noise)[:, 1])
    noise.assign_sub(0.5 * tape.gradient(loss, noise))
print(f"adversarial = {float(tf.reduce_sum(noise)):.8f}")
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(model(sample))
norms = [float(tf.norm(g)) for g in tape.gradient(model(sample)[0, 0] if False else loss, model.trainable_variables)]
print(f"norms = {sum(norms):.9f}")
metric = keras.metrics.SparseCategoricalAccuracy()
metric.update_state(y, model.predict(x, verbose=0))
print(f"outside metric = {float(metric.result()):.7f}")
print(f"loss object = {float(keras.losses.SparseCategoricalCrossentropy()(y, model.predict(x, verbose=0))):.8f}")
matrix = confusion_matrix(y, np.argmax(model.predict(x, verbose=0), axis=1))
print(f"right = {int(np.trace(matrix))}")
