# after: Keras's scikit-learn wrappers, and its example with neural decision forests
# expects: equal
import keras
import numpy as np
from keras import layers, ops
from keras.wrappers import SKLearnClassifier, SKLearnRegressor
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

keras.utils.set_random_seed(19)


def dynamic_model(X, y, loss, units=(6,)):
    inp = layers.Input(shape=(X.shape[1],))
    hidden = inp
    for n in units:
        hidden = layers.Dense(n, activation="relu")(hidden)
    n_outputs = y.shape[1] if len(y.shape) > 1 else 1
    model = keras.Model(inp, layers.Dense(n_outputs, activation="softmax" if n_outputs > 1 else None)(hidden))
    model.compile(loss=loss, optimizer="adam")
    return model


X, y = make_classification(n_samples=80, n_features=6, n_informative=4, n_classes=3, random_state=0)
est = SKLearnClassifier(
    model=dynamic_model, model_kwargs={"loss": "categorical_crossentropy", "units": (5,)},
    fit_kwargs={"epochs": 2, "shuffle": False, "verbose": 0},
)
pipe = make_pipeline(StandardScaler(), est)
pipe.fit(X, y)
print(f"score = {pipe.score(X, y):.7f}")
print(f"proba = {est.model_.predict(X[:5], verbose=0)[:, 0].sum():.7f}")
reg = SKLearnRegressor(model=dynamic_model, model_kwargs={"loss": "mse"}, fit_kwargs={"epochs": 1, "shuffle": False, "verbose": 0})
reg.fit(X, X.sum(1))
print(f"regression = {float(np.sum(reg.predict(X))):.6f}")


class NeuralDecisionTree(keras.Model):
    def __init__(self, depth, num_features, used_features_rate, num_classes):
        super().__init__()
        self.depth, self.num_leaves, self.num_classes = depth, 2**depth, num_classes
        num_used = int(num_features * used_features_rate)
        one_hot = np.eye(num_features)
        sampled = np.random.choice(np.arange(num_features), num_used, replace=False)
        self.used_features_mask = ops.convert_to_tensor(one_hot[sampled], dtype=keras.config.floatx())
        self.pi = self.add_weight(initializer="random_normal", shape=[self.num_leaves, num_classes], dtype=keras.config.floatx(), trainable=True)
        self.decision_fn = layers.Dense(units=self.num_leaves, activation="sigmoid", name="decision")

    def call(self, features):
        batch_size = ops.shape(features)[0]
        features = ops.matmul(features, ops.transpose(self.used_features_mask))
        decisions = ops.expand_dims(self.decision_fn(features), axis=2)
        decisions = layers.concatenate([decisions, 1 - decisions], axis=2)
        mu = ops.ones([batch_size, 1, 1])
        begin_idx, end_idx = 1, 2
        for level in range(self.depth):
            mu = ops.tile(ops.reshape(mu, [batch_size, -1, 1]), (1, 1, 2))
            mu = mu * decisions[:, begin_idx:end_idx, :]
            begin_idx, end_idx = end_idx, end_idx + 2 ** (level + 1)
        mu = ops.reshape(mu, [batch_size, self.num_leaves])
        return ops.matmul(mu, ops.softmax(self.pi))


class NeuralDecisionForest(keras.Model):
    def __init__(self, num_trees):
        super().__init__()
        self.ensemble = [NeuralDecisionTree(3, 6, 0.5, 3) for _ in range(num_trees)]

    def call(self, inputs):
        return sum(tree(inputs) for tree in self.ensemble) / len(self.ensemble)


forest = NeuralDecisionForest(2)
forest.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(), metrics=[keras.metrics.SparseCategoricalAccuracy()])
h = forest.fit(X.astype("float32"), y, epochs=2, batch_size=24, shuffle=False, verbose=0)
for k, v in h.history.items():
    print(f"{k} = {v[-1]:.8f}")
