# after: every layer of Keras's that draws random numbers, each on its way from an input to a loss
# expects: near 0.9: each replica draws its own noise
# floatx: float32: layers that turn pictures cannot be run in float64
import keras
import numpy as np
from keras import layers as la

keras.utils.set_random_seed(4)
rng = np.random.default_rng(5)
MANY = 24
images = rng.uniform(size=(MANY, 8, 8, 3))
series = rng.normal(size=(MANY, 6, 4))
y = rng.uniform(1, 2, size=(MANY, 1))
OF = [
    (
        images,
        la.Dropout(0.3),
        la.Dropout(0.3, noise_shape=(None, 1, 1, 3), seed=3),
        la.SpatialDropout2D(0.3),
        la.GaussianNoise(0.2),
        la.RandomBrightness(0.2, value_range=(0, 1)),
        la.RandomContrast(0.2, value_range=(0, 1)),
        la.RandomFlip("horizontal"),
        la.RandomRotation(0.1),
        la.RandomTranslation(0.1, 0.1),
        la.RandomZoom(0.1),
        la.RandomHue(0.2, value_range=(0, 1)),
        la.RandomSaturation(0.2, value_range=(0, 1)),
        la.RandomErasing(value_range=(0, 1)),
        la.RandomGrayscale(),
    ),
    (
        series,
        la.AlphaDropout(0.2),
        la.GaussianDropout(0.3),
        la.SpatialDropout1D(0.3),
        la.LSTM(3, dropout=0.2, recurrent_dropout=0.2),
        la.GRU(3, recurrent_dropout=0.2),
        la.Bidirectional(la.SimpleRNN(3, dropout=0.2)),
        la.TimeDistributed(la.Dropout(0.3)),
    ),
]
TOGETHER = {
    "heads": lambda x: la.MultiHeadAttention(2, 3, dropout=0.2)(x, x),
    "groups": lambda x: la.GroupQueryAttention(3, 2, 1, dropout=0.2)(x, x),
    "attention": lambda x: la.Attention(dropout=0.2)([la.Dense(3)(x), la.Dense(3)(x)]),
}
for data, *every in OF:
    given = keras.Input(data.shape[1:])
    ways = {layer.name: layer for layer in every} | (TOGETHER if data is series else {})
    outputs = {
        name: la.Dense(1)(la.Flatten()(keras.ops.cast(way(given), "float32")))
        for name, way in ways.items()
    }
    model = keras.Model(given, outputs)
    model.compile(keras.optimizers.SGD(0.002), {name: "mse" for name in outputs})
    wanted = {name: y for name in outputs}
    found = model.fit(data, wanted, batch_size=8, epochs=2, shuffle=False, verbose=0)
    for name, values in sorted(found.history.items()):
        print(f"fit {name} = {sum(values):.10g}")
    found = model.evaluate(data, wanted, batch_size=8, return_dict=True, verbose=0)
    for name, value in sorted(found.items()):
        print(f"evaluate {name} = {value:.10g}")
    for i, values in enumerate(model.get_weights()):
        print(f"weights {i} = {np.abs(values.astype('float64')).sum():.10g}")
