# after: every metric of Keras's, on labels, probabilities, classes and numbers, with weights
# expects: equal
# floatx: float32: TensorFlow finds the k likeliest classes in float32 alone
import keras
import numpy as np

keras.utils.set_random_seed(3)
rng = np.random.default_rng(3)
penalty = keras.regularizers.OrthogonalRegularizer(0.05)  # in float32 alone
m = keras.metrics
x = rng.normal(size=(38, 4))
weights = rng.uniform(0.2, 2.0, 38)
classes = rng.integers(0, 3, 38)
one_hot = keras.utils.to_categorical(classes, 3)
yes = (x[:, :1] + 0.5 * rng.normal(size=(38, 1)) > 0).astype("float64")
many = rng.integers(0, 2, (38, 3)).astype("float64")
numbers = np.stack([x.sum(1), np.abs(x).sum(1)], axis=1) + 0.1 * rng.normal(size=(38, 2))


def squared(a, b):
    return (a - b) ** 2


KINDS = {
    "binary": (
        yes,
        keras.layers.Dense(1, activation="sigmoid"),
        "binary_crossentropy",
        lambda: [
            *(m.BinaryAccuracy(), m.AUC(), m.AUC(curve="PR", name="auc_pr"), m.FalseNegatives()),
            *(m.FalsePositives(), m.TrueNegatives(), m.TruePositives([0.3, 0.7])),
            *(m.Precision(), m.Recall(), m.PrecisionAtRecall(0.5), m.RecallAtPrecision(0.5)),
            *(m.SensitivityAtSpecificity(0.5), m.SpecificityAtSensitivity(0.5)),
            *(m.BinaryIoU([0, 1], 0.5), m.BinaryCrossentropy(), m.Hinge(), m.SquaredHinge()),
            m.F1Score(average="micro", threshold=0.5),
        ],
    ),
    "many": (
        many,
        keras.layers.Dense(3, activation="sigmoid"),
        "binary_crossentropy",
        lambda: [
            m.AUC(multi_label=True, num_labels=3),
            m.AUC(multi_label=True, num_labels=3, label_weights=[1.0, 2.0, 3.0], name="auc_w"),
            m.F1Score(average="macro", threshold=0.5),
            m.FBetaScore(average="weighted", beta=2.0, threshold=0.5),
            m.Precision(class_id=1),
            m.Recall(top_k=2),
            m.BinaryAccuracy(),
        ],
    ),
    "one hot": (
        one_hot,
        keras.layers.Dense(3, activation="softmax"),
        "categorical_crossentropy",
        lambda: [
            *(m.CategoricalAccuracy(), m.TopKCategoricalAccuracy(2), m.CategoricalHinge()),
            *(m.CategoricalCrossentropy(), m.KLDivergence(), m.OneHotMeanIoU(3)),
            *(m.OneHotIoU(3, [0, 2]), m.CosineSimilarity(), m.Precision(), m.AUC()),
        ],
    ),
    "sparse": (
        classes,
        keras.layers.Dense(3, activation="softmax"),
        "sparse_categorical_crossentropy",
        lambda: [
            *(m.SparseCategoricalAccuracy(), m.SparseTopKCategoricalAccuracy(2)),
            *(m.SparseCategoricalCrossentropy(), m.MeanIoU(3, sparse_y_pred=False)),
            m.IoU(3, [0, 1], sparse_y_pred=False),
        ],
    ),
    "numbers": (
        numbers,
        keras.layers.Dense(2),
        "mse",
        lambda: [
            *(m.LogCoshError(), m.MeanAbsoluteError(), m.MeanAbsolutePercentageError()),
            *(m.MeanSquaredError(), m.RootMeanSquaredError(), m.R2Score()),
            m.R2Score("variance_weighted_average", name="r2_weighted"),
            *(m.CosineSimilarity(), m.PearsonCorrelation(), m.ConcordanceCorrelation()),
            *(m.Accuracy(), m.MeanMetricWrapper(squared, name="own")),
        ],
    ),
    "positive": (
        np.abs(numbers),
        keras.layers.Dense(2, activation="softplus"),
        "poisson",
        lambda: [m.Poisson(), m.MeanSquaredLogarithmicError(), m.KLDivergence()],
    ),
}


def shown(kind, of, logs):
    for name, value in sorted(logs.items()):
        value = np.asarray(value, "float64").sum()
        print(f"{kind} {of} {name} = {value:.10g}")


for kind, (y, last, loss, metrics) in KINDS.items():
    first = keras.layers.Dense(6, "relu", kernel_regularizer=penalty)
    model = keras.Sequential([keras.Input((4,)), first, last])
    model.compile(
        keras.optimizers.SGD(0.05), loss, metrics=metrics(), weighted_metrics=metrics()
    )
    given = {"batch_size": 8, "sample_weight": weights, "verbose": 0}
    found = model.fit(x, y, epochs=2, shuffle=False, **given)
    shown(kind, "fit", found.history)
    shown(kind, "evaluate", model.evaluate(x, y, return_dict=True, **given))
