# after: Keras's example "Structured data classification with FeatureSpace": saved and loaded
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras.utils import FeatureSpace

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
n = 90
data = {
    "age": rng.integers(20, 70, n), "chol": rng.normal(200, 30, n),
    "sex": rng.integers(0, 2, n), "thal": rng.choice(["normal", "fixed", "reversible"], n),
    "slope": rng.integers(0, 3, n),
}
data["target"] = ((data["age"] > 45) ^ (data["chol"] > 200)).astype(int)
with open("heart.csv", "w") as f:
    f.write(",".join(data) + "\n")
    for row in zip(*data.values()):
        f.write(",".join(map(str, row)) + "\n")
csv = tf.data.experimental.make_csv_dataset(
    "heart.csv", batch_size=90, label_name="target", num_epochs=1, shuffle=False
)
features, labels = next(iter(csv))


def dataframe_to_dataset(lo, hi):
    ds = tf.data.Dataset.from_tensor_slices(({k: v[lo:hi] for k, v in features.items()}, labels[lo:hi]))
    return ds.shuffle(buffer_size=hi - lo, seed=7)


train_ds, val_ds = dataframe_to_dataset(0, 70).batch(16), dataframe_to_dataset(70, 90).batch(16)
feature_space = FeatureSpace(
    features={
        "sex": FeatureSpace.integer_categorical(num_oov_indices=0),
        "thal": FeatureSpace.string_categorical(num_oov_indices=0),
        "age": FeatureSpace.float_discretized(num_bins=5),
        "chol": FeatureSpace.float_normalized(),
        "slope": "integer_hashed" if False else FeatureSpace.integer_hashed(num_bins=4),
    },
    crosses=[FeatureSpace.cross(feature_names=("sex", "age"), crossing_dim=8)],
    output_mode="concat",
)
feature_space.adapt(train_ds.map(lambda x, _: x))
pre = train_ds.map(lambda x, y: (feature_space(x), y), num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
pre_val = val_ds.map(lambda x, y: (feature_space(x), y))
dict_inputs = feature_space.get_inputs()
encoded_features = feature_space.get_encoded_features()
x = keras.layers.Dense(8, activation="relu")(encoded_features)
predictions = keras.layers.Dense(1, activation="sigmoid")(x)
training_model = keras.Model(inputs=encoded_features, outputs=predictions)
training_model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
inference_model = keras.Model(inputs=dict_inputs, outputs=predictions)
h = training_model.fit(pre, epochs=3, validation_data=pre_val, verbose=0)
for k, v in h.history.items():
    print(f"{k} = {v[-1]:.8f}")
sample = {"age": 60, "sex": 1, "thal": "fixed", "chol": 233.0, "slope": 2}
input_dict = {name: keras.ops.convert_to_tensor([value]) if not isinstance(value, str) else tf.convert_to_tensor([value]) for name, value in sample.items()}
print(f"probability = {inference_model.predict(input_dict, verbose=0)[0][0]:.8f}")
feature_space.save("myfeaturespace.keras")
reloaded = keras.models.load_model("myfeaturespace.keras")
print(f"encoded = {float(keras.ops.sum(reloaded(input_dict))):.7f}")
