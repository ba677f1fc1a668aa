# after: Keras's examples "Node Classification with Graph Neural Networks" and "Graph attention network"
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(31)
rng = np.random.default_rng(31)
n, feats, classes = 40, 5, 3
node_features = rng.normal(size=(n, feats)).astype("float32")
edges = rng.integers(0, n, (120, 2)).astype("int32")
labels = node_features[:, :classes].argmax(1)
train_idx, test_idx = np.arange(30), np.arange(30, 40)


class GraphConv(layers.Layer):
    def __init__(self, units, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ffn, self.update_fn = layers.Dense(units, "relu"), layers.Dense(units, "relu")

    def call(self, inputs):
        reps, edges = inputs
        messages = self.ffn(ops.take(reps, edges[:, 1], axis=0))
        total = ops.segment_sum(messages, edges[:, 0], num_segments=n)
        h = self.update_fn(ops.concatenate([reps, total], axis=1))
        return ops.nn.relu(h / (1e-6 + ops.norm(h, axis=-1, keepdims=True)))


class GNNNodeClassifier(keras.Model):
    def __init__(self, graph_info, num_classes, *args, **kwargs):
        super().__init__(*args, **kwargs)
        node_features, edges = graph_info
        self.node_features, self.edges = ops.convert_to_tensor(node_features), ops.convert_to_tensor(edges)
        self.preprocess = layers.Dense(6, "relu")
        self.conv1 = GraphConv(6)
        self.compute_logits = layers.Dense(num_classes)

    def call(self, input_node_indices):
        x = self.preprocess(self.node_features)
        x = x + self.conv1((x, self.edges))
        return self.compute_logits(ops.take(x, input_node_indices, axis=0))


gnn = GNNNodeClassifier((node_features, edges), classes)
print(f"output = {float(ops.sum(gnn(ops.convert_to_tensor([1, 5, 7])))):.7f}")
gnn.compile(
    optimizer=keras.optimizers.Adam(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
)
early = keras.callbacks.EarlyStopping(monitor="val_acc", patience=50, restore_best_weights=True)
h = gnn.fit(x=train_idx, y=labels[train_idx], validation_split=0.15, epochs=3, batch_size=8, shuffle=False, callbacks=[early], verbose=0)
for k, v in h.history.items():
    print(f"{k} = {v[-1]:.8f}")
_, acc = gnn.evaluate(x=test_idx, y=labels[test_idx], verbose=0)
print(f"test acc = {acc:.7f}")


class GraphAttention(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[0][-1], self.units), trainable=True, initializer="glorot_uniform", regularizer="l2")
        self.kernel_attention = self.add_weight(shape=(self.units * 2, 1), trainable=True, initializer="glorot_uniform")

    def call(self, inputs):
        node_states, edges = inputs
        h = ops.matmul(node_states, self.kernel)
        pairs = ops.reshape(ops.take(h, edges, axis=0), (ops.shape(edges)[0], -1))
        scores = ops.exp(ops.clip(ops.squeeze(ops.leaky_relu(ops.matmul(pairs, self.kernel_attention)), -1), -2, 2))
        sums = ops.segment_sum(scores, edges[:, 0], num_segments=n)
        scores = scores / ops.take(sums, edges[:, 0])
        return ops.segment_sum(ops.take(h, edges[:, 1], axis=0) * scores[:, None], edges[:, 0], num_segments=n)


class GraphAttentionNetwork(keras.Model):
    def __init__(self, node_states, edges, **kwargs):
        super().__init__(**kwargs)
        self.node_states, self.edges = node_states, edges
        self.attention, self.out = GraphAttention(6), layers.Dense(classes)

    def call(self, inputs):
        node_states, edges = inputs
        return self.out(self.attention([node_states, edges]))

    def train_step(self, data):
        indices, labels = data
        with tf.GradientTape() as tape:
            outputs = self([self.node_states, self.edges])
            loss = self.compiled_loss(labels, tf.gather(outputs, indices)) if False else self.compute_loss(y=labels, y_pred=tf.gather(outputs, indices))
        grads = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights))
        self.compute_metrics(None, labels, tf.gather(outputs, indices), None)
        return {m.name: m.result() for m in self.metrics}

    def test_step(self, data):
        indices, labels = data
        outputs = tf.gather(self([self.node_states, self.edges]), indices)
        self.compute_loss(y=labels, y_pred=outputs)
        self.compute_metrics(None, labels, outputs, None)
        return {m.name: m.result() for m in self.metrics}

    def predict_step(self, data):
        return tf.nn.softmax(tf.gather(self([self.node_states, self.edges]), data))


gat = GraphAttentionNetwork(tf.constant(node_features), tf.constant(edges))
gat.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=keras.optimizers.SGD(0.5, momentum=0.9), metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")],
)
h = gat.fit(x=train_idx, y=labels[train_idx], validation_split=0.1, batch_size=9, epochs=3, shuffle=False, verbose=0)
print(f"gat acc = {h.history['acc'][-1]:.7f}")
print(f"gat weights = {sum(float(ops.sum(ops.abs(w))) for w in gat.trainable_weights):.7f}")
print(f"gat probability = {gat.predict(x=test_idx, verbose=0).max():.7f}")
