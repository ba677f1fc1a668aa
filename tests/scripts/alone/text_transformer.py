# after: Keras's example "Text classification with Transformer": positions, masks, class weights
# expects: equal
import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(3)


@keras.saving.register_keras_serializable()
class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        attn_output = self.att(inputs, inputs)
        out1 = self.layernorm1(inputs + self.dropout1(attn_output))
        return self.layernorm2(out1 + self.ffn(out1))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(vocab_size, embed_dim, mask_zero=True)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def compute_mask(self, *args, **kwargs):
        return self.token_emb.compute_mask(*args, **kwargs)

    def call(self, x):
        positions = ops.arange(0, ops.shape(x)[-1], 1)
        return self.token_emb(x) + self.pos_emb(positions)


rng = np.random.default_rng(1)
lengths = rng.integers(3, 15, 100)
texts = [list(rng.integers(1, 30, n)) for n in lengths]
y = np.array([int(sum(t) / len(t) > 15) for t in texts])
x = keras.utils.pad_sequences(texts, maxlen=12)
x_train, x_val, y_train, y_val = x[:77], x[77:], y[:77], y[77:]

inputs = layers.Input(shape=(12,))
h = TokenAndPositionEmbedding(12, 30, 8)(inputs)
h = TransformerBlock(8, 2, 8)(h)
h = layers.GlobalAveragePooling1D()(h)
outputs = layers.Dense(2, activation="softmax")(h)
model = keras.Model(inputs=inputs, outputs=outputs)
model.summary(print_fn=lambda line: None)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x_train, y_train, batch_size=16, epochs=3, shuffle=False, validation_data=(x_val, y_val),
    verbose=0, class_weight={0: 1.0, 1: 2.0},
)
for name in history.history:
    print(f"{name} = {history.history[name][-1]:.8f}")
print(f"weights = {sum(float(ops.sum(ops.abs(w))) for w in model.trainable_weights):.7f}")
print(f"predicted = {model.predict(x_val[:1], verbose=0)[0, 0]:.8f}")
print(f"params = {model.count_params()}")
