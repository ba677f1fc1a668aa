# after: TensorFlow's tutorial "Classify structured data using Keras preprocessing layers"
# expects: equal
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(8)

rng = np.random.default_rng(3)
n = 400
dataframe = {
    "Age": rng.integers(1, 20, n),
    "Fee": rng.gamma(2.0, 40.0, n),
    "PhotoAmt": rng.integers(0, 9, n).astype("float64"),
    "Type": rng.choice(["Cat", "Dog"], n),
    "Breed1": rng.choice(["Tabby", "Mixed", "Siamese", "Poodle"], n),
}
target = ((dataframe["Type"] == "Cat") ^ (dataframe["Fee"] > 70)).astype("int64")
names = list(dataframe)
part = {name: slice(*at) for name, at in {"train": (0, 280), "val": (280, 340), "test": (340, n)}.items()}


def df_to_dataset(which, shuffle=True, batch_size=40):
    features = {name: dataframe[name][part[which]][:, np.newaxis] for name in names}
    ds = tf.data.Dataset.from_tensor_slices((features, target[part[which]]))
    if shuffle:
        ds = ds.shuffle(buffer_size=280, seed=4)
    return ds.batch(batch_size).prefetch(batch_size)


def get_normalization_layer(name, dataset):
    normalizer = layers.Normalization(axis=None)
    feature_ds = dataset.map(lambda x, y: x[name])
    normalizer.adapt(feature_ds)
    return normalizer


def get_category_encoding_layer(name, dataset, dtype, max_tokens=None):
    if dtype == "string":
        index = layers.StringLookup(max_tokens=max_tokens)
    else:
        index = layers.IntegerLookup(max_tokens=max_tokens)
    feature_ds = dataset.map(lambda x, y: x[name])
    index.adapt(feature_ds)
    encoder = layers.CategoryEncoding(num_tokens=index.vocabulary_size())
    return lambda feature: encoder(index(feature))


train_ds, val_ds = df_to_dataset("train"), df_to_dataset("val", shuffle=False)
test_ds = df_to_dataset("test", shuffle=False)
with strategy.scope():
    all_inputs, encoded_features = {}, []
    for header in ["PhotoAmt", "Fee"]:
        numeric_col = tf.keras.Input(shape=(1,), name=header)
        encoded_features.append(get_normalization_layer(header, train_ds)(numeric_col))
        all_inputs[header] = numeric_col
    age_col = tf.keras.Input(shape=(1,), name="Age", dtype="int64")
    encoded_features.append(get_category_encoding_layer("Age", train_ds, "int64", 5)(age_col))
    all_inputs["Age"] = age_col
    for header in ["Type", "Breed1"]:
        categorical_col = tf.keras.Input(shape=(1,), name=header, dtype="string")
        encoded_features.append(get_category_encoding_layer(header, train_ds, "string")(categorical_col))
        all_inputs[header] = categorical_col
    x = layers.Dense(16, activation="relu")(layers.concatenate(encoded_features))
    model = tf.keras.Model(all_inputs, layers.Dense(1)(x))
    model.compile(optimizer="adam", metrics=["accuracy"],
                  loss=tf.keras.losses.BinaryCrossentropy(from_logits=True))

history = model.fit(train_ds, epochs=3, validation_data=val_ds, verbose=0)
print("val_loss =", history.history["val_loss"][-1])
print("Loss: %.15f, Accuracy: %.15f" % tuple(model.evaluate(test_ds, verbose=0)))
model.save("my_pet_classifier.keras")
reloaded_model = tf.keras.models.load_model("my_pet_classifier.keras")
sample = {"Type": "Cat", "Age": 3, "Breed1": "Tabby", "Fee": 100.0, "PhotoAmt": 2.0}
input_dict = {name: tf.convert_to_tensor([[value]]) for name, value in sample.items()}
predictions = reloaded_model.predict(input_dict, verbose=0)
print("This particular pet: prob =", float(tf.nn.sigmoid(predictions[0])[0]))
