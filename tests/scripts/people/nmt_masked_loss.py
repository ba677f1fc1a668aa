# after: TensorFlow's tutorial "Neural machine translation": a loss that divides by its own mask
# expects: near 0.05: a loss that is one number for a batch is averaged over the replicas' parts
import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(18)
rng = np.random.RandomState(18)
vocab, units = 24, 16
lengths = rng.randint(2, 9, 160)
context = np.where(np.arange(8) < lengths[:, None], rng.randint(3, vocab, (160, 8)), 0)
target_out = np.where(context > 0, (context * 5) % (vocab - 1) + 1, 0)
target_in = np.concatenate([np.full((160, 1), 2), target_out[:, :-1]], axis=1)
ds = tf.data.Dataset.from_tensor_slices(((context, target_in), target_out)).shuffle(160, seed=0).batch(32)


class CrossAttention(keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__()
        self.mha = keras.layers.MultiHeadAttention(key_dim=units, num_heads=1, **kwargs)
        self.layernorm = keras.layers.LayerNormalization()
        self.add = keras.layers.Add()

    def call(self, x, context):
        attn_output = self.mha(query=x, value=context)
        return self.layernorm(self.add([x, attn_output]))


class Translator(keras.Model):
    def __init__(self, units):
        super().__init__()
        self.embed_context = keras.layers.Embedding(vocab, units, mask_zero=False)
        self.encoder = keras.layers.Bidirectional(
            keras.layers.GRU(units, return_sequences=True), merge_mode="sum")
        self.embed_target = keras.layers.Embedding(vocab, units)
        self.decoder = keras.layers.GRU(units, return_sequences=True)
        self.attention = CrossAttention(units)
        self.output_layer = keras.layers.Dense(vocab)

    def call(self, inputs):
        context, x = inputs
        context = self.encoder(self.embed_context(context))
        x = self.attention(self.decoder(self.embed_target(x)), context)
        return self.output_layer(x)


def masked_loss(y_true, y_pred):
    # Calculate the loss for each item in the batch.
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    loss = loss_fn(y_true, y_pred)
    # Mask off the losses on padding.
    mask = tf.cast(y_true != 0, loss.dtype)
    loss *= mask
    # Return the total.
    return tf.reduce_sum(loss) / tf.reduce_sum(mask)


def masked_acc(y_true, y_pred):
    y_pred = tf.cast(tf.argmax(y_pred, axis=-1), y_true.dtype)
    match = tf.cast(y_true == y_pred, tf.float32)
    mask = tf.cast(y_true != 0, tf.float32)
    return tf.reduce_sum(match) / tf.reduce_sum(mask)


with strategy.scope():
    model = Translator(units)
    model.compile(optimizer="adam", loss=masked_loss, metrics=[masked_loss])
history = model.fit(ds, epochs=3, validation_data=ds.take(2), verbose=0)
for key in ("loss", "masked_loss", "val_loss"):
    print(key, "=", history.history[key][-1])
print("weights =", float(sum(np.abs(w).sum() for w in model.get_weights())))
