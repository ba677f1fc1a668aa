# after: the layers of Keras's with weights, statistics, masks or penalties, each with a loss
# expects: equal
import keras
import numpy as np
from keras import layers as la

keras.utils.set_random_seed(4)
rng = np.random.default_rng(5)
MANY = 24
images = rng.normal(size=(MANY, 8, 8, 3))
series = rng.normal(size=(MANY, 6, 4)) * (rng.random((MANY, 6, 1)) > 0.3)
rows = rng.normal(size=(MANY, 4))
numbers = rng.integers(0, 9, (MANY, 6))
volumes = rng.normal(size=(MANY, 4, 4, 4, 2))
films = rng.normal(size=(MANY, 3, 5, 5, 2))
y = rng.normal(size=(MANY, 1))

cells = [la.LSTMCell(3), la.GRUCell(2), la.SimpleRNNCell(2)]
normalized = la.Normalization()
normalized.adapt(rows)
binned = la.Discretization(num_bins=3)
binned.adapt(rows)
OF = [
    (
        images,
        la.Conv2D(4, 3, padding="same"),
        la.Conv2DTranspose(2, 3, strides=2),
        la.DepthwiseConv2D(3),
        la.SeparableConv2D(4, 3),
        la.BatchNormalization(momentum=0.8, synchronized=True),
        la.BatchNormalization(center=False, scale=False, axis=1, synchronized=True),
        la.GroupNormalization(3),
        la.LayerNormalization(),
        la.RMSNormalization(),
        la.SpectralNormalization(la.Conv2D(4, 3), power_iterations=2),
        la.UnitNormalization(),
        la.MaxPooling2D(2),
        la.AdaptiveAveragePooling2D(3),
        la.PReLU(),
    ),
    (
        series,
        la.LSTM(3, return_sequences=True),
        la.GRU(3),
        la.SimpleRNN(3),
        la.RNN(cells),
        la.Bidirectional(la.LSTM(2)),
        la.LSTM(3, go_backwards=True, unroll=True),
        la.TimeDistributed(la.Dense(2)),
        la.TimeDistributed(la.BatchNormalization(synchronized=True)),
        la.Conv1D(3, 2, padding="causal"),
        la.Conv1DTranspose(3, 2),
        la.DepthwiseConv1D(2),
        la.SeparableConv1D(3, 2),
        la.EinsumDense("abc,cd->abd", output_shape=(6, 3), bias_axes="d"),
        keras.Sequential([la.Masking(), la.LSTM(3)], name="masked_lstm"),
        keras.Sequential([la.Masking(), la.BatchNormalization(synchronized=True)], name="masked_norm"),
        keras.Sequential([la.Masking(), la.GlobalAveragePooling1D()], name="masked_mean"),
        keras.Sequential([la.Masking(), la.TimeDistributed(la.Dense(2))], name="masked_times"),
    ),
    (
        rows,
        la.Dense(3, kernel_regularizer=keras.regularizers.L1L2(0.01, 0.02)),
        la.Dense(3, bias_regularizer="l2", activity_regularizer="l2"),
        la.ActivityRegularization(0.1, 0.2),
        la.Dense(3, kernel_constraint=keras.constraints.MaxNorm(0.5)),
        la.Dense(3, kernel_constraint="non_neg", bias_constraint="non_neg"),
        la.Dense(3, kernel_constraint="unit_norm"),
        la.Dense(3, kernel_constraint=keras.constraints.MinMaxNorm(0.3, 0.6)),
        la.SpectralNormalization(la.Dense(3)),
        la.Lambda(lambda x: x * x),
        normalized,
        keras.Sequential([binned, la.CategoryEncoding(4, "multi_hot")], name="binned"),
    ),
    (
        numbers,
        la.Embedding(9, 2),
        la.Embedding(9, 2, embeddings_regularizer="l2", embeddings_constraint="unit_norm"),
        keras.Sequential([la.Embedding(9, 3, mask_zero=True), la.LSTM(2)], name="masked_rows"),
        la.ReversibleEmbedding(9, 2),
        la.CategoryEncoding(9, "count"),
        keras.Sequential([la.Hashing(5), la.Embedding(5, 2)], name="hashed"),
    ),
    (
        volumes,
        la.Conv3D(2, 2),
        la.Conv3DTranspose(2, 2),
        la.ConvLSTM2D(2, 2),
    ),
    (films, la.ConvLSTM2D(2, 2, return_sequences=True), la.TimeDistributed(la.Conv2D(2, 2))),
]
TOGETHER = {  # of several tensors of one input
    "attention": lambda x: la.Attention(use_scale=True)([la.Dense(3)(x), la.Dense(3)(x)]),
    "additive": lambda x: la.AdditiveAttention()([la.Dense(3)(x), la.Dense(3)(x)]),
    "heads": lambda x: la.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True),
    "groups": lambda x: la.GroupQueryAttention(3, 2, 1)(x, x),
    "dot": lambda x: la.Dot(2, normalize=True)([la.Dense(3)(x), la.Dense(3)(x)]),
    "recurrent": lambda x: la.LSTM(2)(x, initial_state=[la.Dense(2)(x[:, 0])] * 2),
}

for data, *every in OF:
    given = keras.Input(data.shape[1:], dtype="int32" if data is numbers else None)
    ways = {layer.name: layer for layer in every}
    ways |= TOGETHER if data is series else {}
    outputs = {
        name: la.Dense(1)(la.Flatten()(keras.ops.cast(layer(given), "float64")))
        for name, layer in ways.items()
    }
    model = keras.Model(given, outputs)
    model.compile(keras.optimizers.SGD(0.02), {name: "mse" for name in outputs})
    wanted = {name: y for name in outputs}
    found = model.fit(data, wanted, batch_size=8, epochs=2, shuffle=False, verbose=0)
    for name, values in sorted(found.history.items()):
        print(f"fit {name} = {sum(values):.10g}")
    found = model.evaluate(data, wanted, batch_size=8, return_dict=True, verbose=0)
    for name, value in sorted(found.items()):
        print(f"evaluate {name} = {value:.10g}")
    for i, values in enumerate(model.get_weights()):
        print(f"weights {i} = {np.abs(values.astype('float64')).sum():.10g}")
