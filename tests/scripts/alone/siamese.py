# after: Keras's example "Image similarity estimation using a Siamese Network with contrastive loss"
# expects: equal
import random

import keras
import numpy as np
from keras import ops

keras.utils.set_random_seed(9)
rng = np.random.default_rng(9)
y = np.arange(80) % 4
x = rng.random((80, 10, 10)) + y[:, None, None] / 2


def make_pairs(x, y):
    digit_indices = [np.where(y == i)[0] for i in range(max(y) + 1)]
    pairs, labels = [], []
    for idx1 in range(len(x)):
        label1 = y[idx1]
        idx2 = random.choice(digit_indices[label1])
        pairs += [[x[idx1], x[idx2]]]
        labels += [0]
        label2 = random.randint(0, max(y))
        while label2 == label1:
            label2 = random.randint(0, max(y))
        pairs += [[x[idx1], x[random.choice(digit_indices[label2])]]]
        labels += [1]
    return np.array(pairs), np.array(labels).astype("float32")


pairs, labels = make_pairs(x, y)
val, val_labels = pairs[120:], labels[120:]
pairs, labels = pairs[:120], labels[:120]


def euclidean_distance(vects):
    a, b = vects
    return ops.sqrt(ops.maximum(ops.sum(ops.square(a - b), axis=1, keepdims=True), 1e-7))


inputs = keras.layers.Input((10, 10, 1))
h = keras.layers.Conv2D(4, (5, 5), activation="tanh")(inputs)
h = keras.layers.AveragePooling2D(pool_size=(2, 2))(h)
h = keras.layers.Flatten()(h)
embedding_network = keras.Model(inputs, keras.layers.Dense(10, activation="tanh")(h))
input_1, input_2 = keras.layers.Input((10, 10, 1)), keras.layers.Input((10, 10, 1))
towers = [embedding_network(one) for one in (input_1, input_2)]
merged = keras.layers.Lambda(euclidean_distance, output_shape=(1,))(towers)
output = keras.layers.Dense(1, activation="sigmoid")(merged)
siamese = keras.Model(inputs=[input_1, input_2], outputs=output)


def loss(margin=1):
    def contrastive_loss(y_true, y_pred):
        square_pred = ops.square(y_pred)
        margin_square = ops.square(ops.maximum(margin - y_pred, 0))
        return ops.mean((1 - y_true) * square_pred + y_true * margin_square)

    return contrastive_loss


siamese.compile(loss=loss(margin=1), optimizer="RMSprop", metrics=["accuracy"])
history = siamese.fit(
    [pairs[:, 0], pairs[:, 1]], labels, validation_data=([val[:, 0], val[:, 1]], val_labels),
    batch_size=16, epochs=3, shuffle=False, verbose=0)
for name in ("accuracy", "loss", "val_loss"):
    for value in history.history[name]:
        print(name, "=", value)
results = siamese.evaluate([val[:, 0], val[:, 1]], val_labels, verbose=0)
print("test loss, test acc:", results)
predictions = siamese.predict([val[:, 0], val[:, 1]], verbose=0)
print("predicted =", float(predictions.sum()))
embedded = embedding_network.predict(x[:, :, :, None], verbose=0)
print("embedded =", float(np.abs(embedded).sum()))
