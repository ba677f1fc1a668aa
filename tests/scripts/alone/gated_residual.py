# after: Keras's example "Classification with Gated Residual and Variable Selection Networks": CSV, StringLookup
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(9)
encoding_size = 6


class GatedLinearUnit(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.linear = layers.Dense(units)
        self.sigmoid = layers.Dense(units, activation="sigmoid")

    def call(self, inputs):
        return self.linear(inputs) * self.sigmoid(inputs)


class GatedResidualNetwork(layers.Layer):
    def __init__(self, units, dropout_rate):
        super().__init__()
        self.units = units
        self.elu_dense = layers.Dense(units, activation="elu")
        self.dropout = layers.Dropout(dropout_rate)
        self.gated = GatedLinearUnit(units)
        self.norm = layers.LayerNormalization()
        self.project = layers.Dense(units)

    def call(self, inputs):
        x = self.dropout(self.elu_dense(inputs))
        if inputs.shape[-1] != self.units:
            inputs = self.project(inputs)
        return self.norm(inputs + self.gated(x))


class VariableSelection(layers.Layer):
    def __init__(self, num_features, units, dropout_rate):
        super().__init__()
        self.grns = [GatedResidualNetwork(units, dropout_rate) for _ in range(num_features)]
        self.grn_concat = GatedResidualNetwork(units, dropout_rate)
        self.softmax = layers.Dense(units=num_features, activation="softmax")

    def call(self, inputs):
        v = self.softmax(self.grn_concat(layers.concatenate(inputs)))
        x = ops.stack([grn(i) for i, grn in zip(inputs, self.grns)], axis=1)
        return ops.squeeze(ops.matmul(ops.transpose(ops.expand_dims(v, -1), (0, 2, 1)), x), axis=1)


rng = np.random.default_rng(9)
header = ["age", "sex", "wage", "class"]
with open("train.csv", "w") as f:
    for _ in range(80):
        a, w, s = rng.integers(20, 60), round(rng.normal(10, 2), 4), rng.choice(["m", "f"])
        f.write(f"{a},{s},{w},{' 50000+.' if a + w > 52 else ' - 50000.'}\n")
target = layers.StringLookup(vocabulary=[" - 50000.", " 50000+."], mask_token=None, num_oov_indices=0)


def process(features, label):
    return features, target(label)


def get_dataset(path, batch_size=20, shuffle=False):
    return tf.data.experimental.make_csv_dataset(
        path, batch_size=batch_size, column_names=header, column_defaults=[[0.0], ["NA"], [0.0], ["NA"]],
        label_name="class", num_epochs=1, header=False, shuffle=shuffle,
    ).map(process, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


inputs = {
    "age": keras.Input((1,), name="age"), "wage": keras.Input((1,), name="wage"),
    "sex": keras.Input((1,), name="sex", dtype="string"),
}
lookup = layers.StringLookup(vocabulary=["f", "m"], num_oov_indices=0)
cat = layers.Reshape((encoding_size,))(layers.Embedding(2, encoding_size)(lookup(inputs["sex"])))
feats = [layers.Dense(encoding_size)(inputs["age"]), layers.Dense(encoding_size)(inputs["wage"]), cat]
attended = layers.MultiHeadAttention(2, 4)(ops.stack(feats, 1), ops.stack(feats, 1))
x = VariableSelection(3, encoding_size, 0.0)(feats)
x = layers.concatenate([x, layers.Flatten()(attended)])
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile(
    optimizer=keras.optimizers.RMSprop(learning_rate=0.01),
    loss=keras.losses.BinaryCrossentropy(label_smoothing=0.1), metrics=[keras.metrics.BinaryAccuracy(name="accuracy")],
)
early = keras.callbacks.EarlyStopping(monitor="val_loss", patience=1, restore_best_weights=True)
h = model.fit(get_dataset("train.csv"), epochs=4, validation_data=get_dataset("train.csv", 32), callbacks=[early], verbose=0)
print(f"epochs = {len(h.history['loss'])}")
for k, v in h.history.items():
    print(f"{k} = {v[-1]:.8f}")
_, accuracy = model.evaluate(get_dataset("train.csv", 33), verbose=0)
print(f"Test accuracy = {accuracy:.7f}")
