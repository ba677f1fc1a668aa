# after: Keras's example "Text generation with a miniature GPT": one file of text, a callback predicts
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from keras.layers import TextVectorization

keras.utils.set_random_seed(8)
np.random.seed(8)
vocab_size, maxlen, embed_dim = 40, 9, 8
words = [f"w{i}" for i in range(35)]
rng = np.random.default_rng(3)
lines = [" ".join(rng.choice(words, 12)) for _ in range(50)]
with open("lines.txt", "w") as f:
    f.write("\n".join(lines))


def causal_attention_mask(batch_size, n_dest, n_src, dtype):
    i = ops.arange(n_dest)[:, None]
    j = ops.arange(n_src)
    mask = ops.reshape(ops.cast(i >= j - n_src + n_dest, dtype), [1, n_dest, n_src])
    return ops.broadcast_to(mask, (batch_size, n_dest, n_src))


class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.att = layers.MultiHeadAttention(2, embed_dim)
        self.ffn = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(embed_dim)])
        self.norm = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        shape = ops.shape(inputs)
        mask = causal_attention_mask(shape[0], shape[1], shape[1], "bool")
        return self.norm(inputs + self.ffn(self.att(inputs, inputs, attention_mask=mask)))


text_ds = tf.data.TextLineDataset(["lines.txt"]).shuffle(256, seed=1, reshuffle_each_iteration=False).batch(12)
vectorize_layer = TextVectorization(
    standardize=lambda s: tf.strings.lower(s), max_tokens=vocab_size - 1,
    output_mode="int", output_sequence_length=maxlen + 1,
)
vectorize_layer.adapt(text_ds)
vocab = vectorize_layer.get_vocabulary()


def prepare(text):
    tokenized = vectorize_layer(tf.expand_dims(text, -1))
    return tokenized[:, :-1], tokenized[:, 1:]


text_ds = text_ds.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
inputs = layers.Input(shape=(maxlen,), dtype="int32")
x = layers.Embedding(vocab_size, embed_dim)(inputs)
x = Block()(x)
outputs = layers.Dense(vocab_size)(x)
model = keras.Model(inputs=inputs, outputs=[outputs, x])
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("rmsprop", loss=[loss_fn, None])


class TextGenerator(keras.callbacks.Callback):
    def __init__(self, max_tokens, start_tokens, top_k=5, print_every=1):
        super().__init__()
        self.max_tokens, self.start_tokens, self.k = max_tokens, start_tokens, top_k
        self.print_every = print_every

    def sample_from(self, logits):
        logits, indices = ops.top_k(logits, k=self.k, sorted=True)
        indices = np.asarray(indices).astype("int32")
        preds = np.asarray(keras.activations.softmax(ops.expand_dims(logits, 0))[0]).astype("float64")
        return np.random.choice(indices, p=preds / preds.sum())

    def on_epoch_end(self, epoch, logs=None):
        start_tokens = [_ for _ in self.start_tokens]
        if (epoch + 1) % self.print_every != 0:
            return
        made = []
        while len(made) < self.max_tokens:
            pad_len = maxlen - len(start_tokens)
            sample_index = len(start_tokens) - 1
            x = start_tokens + [0] * pad_len
            y, _ = self.model.predict(np.array([x]), verbose=0)
            token = self.sample_from(y[0][sample_index])
            made.append(int(token))
            start_tokens.append(int(token))
        print(f"tokens = {sum(made)}")


h = model.fit(text_ds, verbose=0, epochs=3, callbacks=[TextGenerator(4, [3, 4])])
print(f"loss = {h.history['loss'][-1]:.8f}")
