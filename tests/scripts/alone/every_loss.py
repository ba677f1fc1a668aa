# after: every loss of Keras's, in every way of reducing it, with weights of samples and without
# expects: equal
import keras
import numpy as np

keras.utils.set_random_seed(4)
rng = np.random.default_rng(4)
losses = keras.losses
x = rng.normal(size=(40, 4))
classes = rng.integers(0, 3, 40)
one_hot = keras.utils.to_categorical(classes, 3)
yes = rng.integers(0, 2, (40, 2)).astype("float64")
numbers = rng.normal(size=(40, 2))
OF = {  # a loss, and of what: what is to come out, how wide a layer, and how it ends
    losses.BinaryCrossentropy: (yes, 2, "sigmoid"),
    losses.BinaryFocalCrossentropy: (yes, 2, "sigmoid"),
    losses.CategoricalCrossentropy: (one_hot, 3, "softmax"),
    losses.CategoricalFocalCrossentropy: (one_hot, 3, "softmax"),
    losses.CategoricalGeneralizedCrossEntropy: (classes, 3, "softmax"),
    losses.CategoricalHinge: (one_hot, 3, None),
    losses.CosineSimilarity: (numbers, 2, None),
    losses.Hinge: (2 * yes - 1, 2, None),
    losses.Huber: (numbers, 2, None),
    losses.KLDivergence: (one_hot, 3, "softmax"),
    losses.LogCosh: (numbers, 2, None),
    losses.MeanAbsoluteError: (numbers, 2, None),
    losses.MeanAbsolutePercentageError: (numbers, 2, None),
    losses.MeanSquaredError: (numbers, 2, None),
    losses.MeanSquaredLogarithmicError: (np.abs(numbers), 2, "softplus"),
    losses.Poisson: (np.abs(numbers), 2, "softplus"),
    losses.SparseCategoricalCrossentropy: (classes, 3, "softmax"),
    losses.SquaredHinge: (2 * yes - 1, 2, None),
}
WAYS = [
    ("sum_over_batch_size", False),
    ("sum_over_batch_size", True),
    ("sum", True),
    ("mean_with_sample_weight", True),
]

for reduction, is_weighted in WAYS:
    given = keras.Input((4,))
    outputs, wanted = {}, {}
    for loss, (y, width, end) in OF.items():
        outputs[loss.__name__] = keras.layers.Dense(width, end, name=loss.__name__)(given)
        wanted[loss.__name__] = y
    model = keras.Model(given, outputs)
    model.compile(
        keras.optimizers.SGD(0.05), {loss.__name__: loss(reduction=reduction) for loss in OF}
    )
    more = {"batch_size": 8, "verbose": 0}
    if is_weighted:
        more["sample_weight"] = {name: rng.uniform(0.2, 2.0, 40) for name in wanted}
    of = f"{reduction} {'weighted' if is_weighted else 'plain'}"
    found = model.fit(x, wanted, epochs=2, shuffle=False, **more)
    for name, values in sorted(found.history.items()):
        print(f"{of} fit {name} = {sum(values):.10g}")
    for name, value in sorted(model.evaluate(x, wanted, return_dict=True, **more).items()):
        print(f"{of} evaluate {name} = {value:.10g}")
    for layer in model.layers[1:]:
        print(f"{of} weights {layer.name} = {np.abs(layer.get_weights()[0]).sum():.10g}")
