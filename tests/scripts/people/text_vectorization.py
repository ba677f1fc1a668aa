# after: TensorFlow's tutorial "Basic text classification": TextVectorization, cache, an export model
# expects: near 0.15: each replica drops units of its own
import re
import string

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers, losses

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(42)

rng = np.random.default_rng(0)
good = "great lovely wonderful superb moving brilliant".split()
bad = "dull awful boring terrible weak messy".split()
filler = "the film was a story of two people and their dog <br /> in town".split()


def review(label):
    words = list(rng.choice(filler, 8)) + list(rng.choice(good if label else bad, 2))
    rng.shuffle(words)
    return " ".join(words).capitalize() + "!"


labels = rng.integers(0, 2, 320)
texts = [review(label) for label in labels]
batch_size = 32
raw = tf.data.Dataset.from_tensor_slices((texts, labels))
raw_train_ds = raw.take(192).shuffle(192, seed=42).batch(batch_size)
raw_val_ds = raw.skip(192).take(64).batch(batch_size)
raw_test_ds = raw.skip(256).batch(batch_size)


def custom_standardization(input_data):
    lowercase = tf.strings.lower(input_data)
    stripped_html = tf.strings.regex_replace(lowercase, "<br />", " ")
    return tf.strings.regex_replace(stripped_html, "[%s]" % re.escape(string.punctuation), "")


vectorize_layer = layers.TextVectorization(
    standardize=custom_standardization, max_tokens=100, output_mode="int", output_sequence_length=12)
train_text = raw_train_ds.map(lambda x, y: x)
vectorize_layer.adapt(train_text)
print("vocabulary =", len(vectorize_layer.get_vocabulary()))


def vectorize_text(text, label):
    text = tf.expand_dims(text, -1)
    return vectorize_layer(text), label


AUTOTUNE = tf.data.AUTOTUNE
train_ds = raw_train_ds.map(vectorize_text).cache().prefetch(buffer_size=AUTOTUNE)
val_ds = raw_val_ds.map(vectorize_text).cache().prefetch(buffer_size=AUTOTUNE)
test_ds = raw_test_ds.map(vectorize_text).cache().prefetch(buffer_size=AUTOTUNE)

with strategy.scope():
    model = tf.keras.Sequential(
        [layers.Embedding(100, 8), layers.Dropout(0.2), layers.GlobalAveragePooling1D(),
         layers.Dropout(0.2), layers.Dense(1, activation="sigmoid")])
    model.compile(loss=losses.BinaryCrossentropy(), optimizer="adam",
                  metrics=[tf.metrics.BinaryAccuracy(threshold=0.5)])
history = model.fit(train_ds, validation_data=val_ds, epochs=3, verbose=0)
loss, accuracy = model.evaluate(test_ds, verbose=0)
print("Loss: ", loss)
with strategy.scope():
    export_model = tf.keras.Sequential([vectorize_layer, model])
    export_model.compile(loss=losses.BinaryCrossentropy(), optimizer="adam", metrics=["accuracy"])
metrics = export_model.evaluate(raw_test_ds, return_dict=True, verbose=0)
print("exported loss =", metrics["loss"])
examples = tf.constant(["The movie was great!", "The movie was boring.", "The movie was terrible..."])
print("examples =", float(export_model.predict(examples, verbose=0).sum()))
