# after: TensorFlow's tutorials "Text generation with an RNN" and "word2vec"
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(61)
text = "First citizen: before we proceed any further, hear me speak. All: speak, speak. " * 3
vocab = sorted(set(text))
ids_from_chars = tf.keras.layers.StringLookup(vocabulary=list(vocab), mask_token=None)
chars_from_ids = tf.keras.layers.StringLookup(vocabulary=ids_from_chars.get_vocabulary(), invert=True, mask_token=None)
all_ids = ids_from_chars(tf.strings.unicode_split(text, "UTF-8"))
ids_dataset = tf.data.Dataset.from_tensor_slices(all_ids)
sequences = ids_dataset.batch(9, drop_remainder=True)


def split_input_target(sequence):
    return sequence[:-1], sequence[1:]


dataset = (
    sequences.map(split_input_target).shuffle(1000, seed=1).batch(8, drop_remainder=True).prefetch(tf.data.experimental.AUTOTUNE)
)
for example_input, example_target in dataset.take(1):
    print(f"shape = {example_input.shape[1]}")


class MyModel(tf.keras.Model):
    def __init__(self, vocab_size, embedding_dim, rnn_units):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(vocab_size, embedding_dim)
        self.gru = tf.keras.layers.GRU(rnn_units, return_sequences=True, return_state=True)
        self.dense = tf.keras.layers.Dense(vocab_size)

    def call(self, inputs, states=None, return_state=False, training=False):
        x = self.embedding(inputs, training=training)
        if states is None:
            states = self.gru.get_initial_state(tf.shape(x)[0])[0] if False else None
        x, states = self.gru(x, initial_state=states, training=training)
        x = self.dense(x, training=training)
        return (x, states) if return_state else x


model = MyModel(len(ids_from_chars.get_vocabulary()), 6, 8)
for input_example_batch, target_example_batch in dataset.take(1):
    example_batch_predictions = model(input_example_batch)
    print(f"predictions = {example_batch_predictions.shape[-1]}")
model.summary()
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
mean = loss(target_example_batch, example_batch_predictions)
print(f"perplexity at first = {float(tf.exp(mean)):.6f}")
model.compile(optimizer="adam", loss=loss)
checkpoint_callback = tf.keras.callbacks.ModelCheckpoint(filepath="training_checkpoints/ckpt_{epoch}.weights.h5", save_weights_only=True)
history = model.fit(dataset, epochs=3, callbacks=[checkpoint_callback], verbose=0)
print(f"loss = {history.history['loss'][-1]:.8f}")


class OneStep(tf.keras.Model):
    def __init__(self, model, chars_from_ids, ids_from_chars, temperature=1.0):
        super().__init__()
        self.temperature, self.model = temperature, model
        self.chars_from_ids, self.ids_from_chars = chars_from_ids, ids_from_chars
        skip_ids = self.ids_from_chars(["[UNK]"])[:, None]
        sparse_mask = tf.SparseTensor(values=[-float("inf")] * len(skip_ids), indices=skip_ids, dense_shape=[len(ids_from_chars.get_vocabulary())])
        self.prediction_mask = tf.cast(tf.sparse.to_dense(sparse_mask), keras.config.floatx())

    @tf.function
    def generate_one_step(self, inputs, states=None):
        input_ids = self.ids_from_chars(tf.strings.unicode_split(inputs, "UTF-8")).to_tensor()
        predicted_logits, states = self.model(inputs=input_ids, states=states, return_state=True)
        predicted_logits = predicted_logits[:, -1, :] / self.temperature + self.prediction_mask
        return self.chars_from_ids(tf.argmax(predicted_logits, -1)), states


one_step_model = OneStep(model, chars_from_ids, ids_from_chars)
states, next_char, result = None, tf.constant(["First"]), []
for n in range(6):
    next_char, states = one_step_model.generate_one_step(next_char, states=states)
    result.append(next_char)
generated = tf.strings.join(result)[0].numpy().decode("utf-8")
print(f"codes = {sum(map(ord, generated))}")

inverse = tf.nn.sampled_softmax_loss
sequence = np.random.randint(1, 20, 100)
pairs, _ = tf.keras.preprocessing.sequence.skipgrams(sequence.tolist(), 20, window_size=1, negative_samples=0) if hasattr(tf.keras.preprocessing.sequence, "skipgrams") else ([[a, b] for a, b in zip(sequence, sequence[1:])], None)
pairs = np.array(sorted(map(list, pairs)))[:96]
targets = pairs[:, 0]
contexts = np.stack([pairs[:, 1], (pairs[:, 1] + 3) % 20, (pairs[:, 1] + 7) % 20], 1)
labels = np.tile([1, 0, 0], (len(pairs), 1))
w2v = tf.data.Dataset.from_tensor_slices(((targets, contexts), labels)).batch(20, drop_remainder=True).cache()


class Word2Vec(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.target_embedding = tf.keras.layers.Embedding(20, 5, name="w2v_embedding")
        self.context_embedding = tf.keras.layers.Embedding(20, 5)

    def call(self, pair):
        target, context = pair
        word_emb = self.target_embedding(target)
        context_emb = self.context_embedding(context)
        return tf.einsum("be,bce->bc", word_emb, context_emb)


def custom_loss(x_logit, y_true):
    return tf.nn.sigmoid_cross_entropy_with_logits(logits=y_true, labels=tf.cast(x_logit, y_true.dtype))


word2vec = Word2Vec()
word2vec.compile(optimizer="adam", loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
h = word2vec.fit(w2v, epochs=2, verbose=0)
print(f"w2v loss = {h.history['loss'][-1]:.8f}")
word2vec.compile(optimizer="sgd", loss=custom_loss)
h = word2vec.fit(w2v, epochs=1, verbose=0)
print(f"own loss = {h.history['loss'][-1]:.8f}")
print(f"embedding = {np.abs(word2vec.get_layer('w2v_embedding').get_weights()[0]).sum():.7f}")
