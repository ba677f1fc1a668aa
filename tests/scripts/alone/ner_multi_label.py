# after: Keras's examples "Named Entity Recognition using Transformers" and "Large-scale multi-label text classification"
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

tf.random.set_seed(6)
keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
tokens = [[f"t{w}" for w in rng.integers(0, 20, rng.integers(2, 9))] for _ in range(70)]
lookup_layer = keras.layers.StringLookup(vocabulary=sorted({w for t in tokens for w in t}))
print(f"vocabulary = {lookup_layer.vocabulary_size()}")


def generate():
    for sentence in tokens:
        yield " ".join(sentence), np.array([1 + int(w[1:]) % 3 for w in sentence], "int64")


def to_tensors(text, tags):
    return lookup_layer(tf.strings.split(text)), tags


train_data = tf.data.Dataset.from_generator(
    generate,
    output_signature=(
        tf.TensorSpec(shape=(), dtype=tf.string), tf.TensorSpec(shape=(None,), dtype=tf.int64)
    ),
)
batch_size = 16
train_dataset = train_data.map(to_tensors).padded_batch(batch_size)


class NERModel(keras.Model):
    def __init__(self, num_tags, vocab_size):
        super().__init__()
        self.embedding = layers.Embedding(vocab_size, 8)
        self.ff = layers.Dense(8, activation="relu")
        self.ff_final = layers.Dense(num_tags, activation="softmax")

    def call(self, inputs, training=False):
        return self.ff_final(self.ff(self.embedding(inputs)))


class CustomNonPaddingTokenLoss(keras.losses.Loss):
    def __init__(self, name="custom_ner_loss"):
        super().__init__(name=name)

    def call(self, y_true, y_pred):
        loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=False, reduction=None)
        loss = loss_fn(y_true, y_pred)
        mask = ops.cast(y_true > 0, dtype=loss.dtype)
        loss = loss * mask
        return ops.sum(loss) / ops.sum(mask)


ner_model = NERModel(4, lookup_layer.vocabulary_size())
ner_model.compile(optimizer="rmsprop", loss=CustomNonPaddingTokenLoss())
h = ner_model.fit(train_dataset, epochs=2, verbose=0)
print(f"loss = {h.history['loss'][-1]:.7f}")
prediction = ops.argmax(ner_model.predict(train_dataset.take(1), verbose=0), axis=-1)
print(f"tags = {int(ops.sum(prediction))}")

terms = [["cs", "ml"], ["ml"], ["bio"], ["cs"], ["bio", "ml"]]
rows = tf.ragged.constant([terms[i % 5] for i in range(50)])
multi = layers.StringLookup(output_mode="multi_hot")
multi.adapt(rows)
y = multi(rows)
texts = np.array([" ".join(["about"] * (i % 3 + 1) + terms[i % 5]) for i in range(50)])
vectorizer = layers.TextVectorization(max_tokens=20, ngrams=2, output_mode="tf_idf")
vectorizer.adapt(texts)
dataset = tf.data.Dataset.from_tensor_slices((texts, y)).shuffle(50, seed=3).batch(8)
dataset = dataset.map(lambda t, l: (vectorizer(t), l), num_parallel_calls=tf.data.AUTOTUNE)
mlp = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(multi.vocabulary_size(), activation="sigmoid")])
mlp.compile(loss="binary_crossentropy", optimizer="adam", metrics=["binary_accuracy", keras.metrics.AUC(multi_label=True)])
h = mlp.fit(dataset, validation_data=dataset.take(3), epochs=2, verbose=0)
for k, v in h.history.items():
    print(f"multi {k} = {v[-1]:.7f}")
