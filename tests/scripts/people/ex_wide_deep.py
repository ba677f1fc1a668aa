# after: Keras's example "Structured data learning with Wide, Deep, and Cross networks": CSV files
# expects: equal
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(16)

NUMERIC_FEATURE_NAMES = ["Elevation", "Slope"]
CATEGORICAL_FEATURES_WITH_VOCABULARY = {
    "Wilderness_Area": ["Area1", "Area2", "Area3"],
    "Soil_Type": ["Sand", "Clay", "Rock", "Peat"],
}
TARGET_FEATURE_NAME = "Cover_Type"
CSV_HEADER = [*NUMERIC_FEATURE_NAMES, *CATEGORICAL_FEATURES_WITH_VOCABULARY, TARGET_FEATURE_NAME]
COLUMN_DEFAULTS = [[0.0], [0.0], ["NA"], ["NA"], [0]]

rng = np.random.default_rng(16)
directory = tempfile.mkdtemp()
for name, rows in {"train.csv": 320, "test.csv": 80}.items():
    with open(os.path.join(directory, name), "w") as f:
        f.write(",".join(CSV_HEADER) + "\n")
        for _ in range(rows):
            elevation, slope = rng.normal(), rng.normal()
            area, soil = rng.choice(["Area1", "Area2", "Area3"]), rng.choice(["Sand", "Clay", "Rock", "Peat"])
            label = int(elevation > 0) + int(area == "Area2" or soil == "Rock")
            f.write(f"{elevation:.4f},{slope:.4f},{area},{soil},{label}\n")


def get_dataset_from_csv(csv_file_path, batch_size, shuffle=False):
    dataset = tf.data.experimental.make_csv_dataset(
        csv_file_path, batch_size=batch_size, column_names=CSV_HEADER,
        column_defaults=COLUMN_DEFAULTS, label_name=TARGET_FEATURE_NAME, num_epochs=1,
        header=True, shuffle=shuffle, shuffle_seed=7)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    # Keras sorts the names of a dict, but not those of the OrderedDict that TensorFlow makes.
    return dataset.map(lambda x, y: (dict(x), y)).cache().with_options(options)


def create_model_inputs():
    inputs = {}
    for feature_name in NUMERIC_FEATURE_NAMES:
        inputs[feature_name] = layers.Input(name=feature_name, shape=(), dtype="float32")
    for feature_name in CATEGORICAL_FEATURES_WITH_VOCABULARY:
        inputs[feature_name] = layers.Input(name=feature_name, shape=(), dtype="string")
    return inputs


def encode_inputs(inputs, use_embedding=False):
    encoded_features = []
    for name in inputs:
        if name in CATEGORICAL_FEATURES_WITH_VOCABULARY:
            vocabulary = CATEGORICAL_FEATURES_WITH_VOCABULARY[name]
            lookup = layers.StringLookup(
                vocabulary=vocabulary, num_oov_indices=0, output_mode="int" if use_embedding else "one_hot")
            encoded = lookup(inputs[name] if use_embedding else layers.Reshape((1,))(inputs[name]))
            if use_embedding:
                encoded = layers.Embedding(len(vocabulary), 3)(encoded)
        else:
            encoded = layers.Reshape((1,))(inputs[name])
        encoded_features.append(encoded)
    return layers.concatenate(encoded_features)


with strategy.scope():
    inputs = create_model_inputs()
    wide = layers.BatchNormalization(synchronized=True)(encode_inputs(inputs))
    deep = encode_inputs(inputs, use_embedding=True)
    for units in [16, 8]:
        deep = layers.Dense(units)(deep)
        deep = layers.ReLU()(deep)
    merged = layers.concatenate([wide, deep])
    model = keras.Model(inputs=inputs, outputs=layers.Dense(units=3, activation="softmax")(merged))
    model.compile(optimizer=keras.optimizers.Adam(0.01), metrics=[keras.metrics.SparseCategoricalAccuracy()],
                  loss=keras.losses.SparseCategoricalCrossentropy())
train_dataset = get_dataset_from_csv(os.path.join(directory, "train.csv"), 40, shuffle=True)
test_dataset = get_dataset_from_csv(os.path.join(directory, "test.csv"), 40)
history = model.fit(train_dataset, epochs=3, verbose=0)
print("loss =", history.history["loss"][-1])
loss, accuracy = model.evaluate(test_dataset, verbose=0)
print(f"Test loss: {loss}")
print(f"Test accuracy: {round(accuracy * 100, 2)}%")
