# after: Keras's example "Classification using Attention-based Deep Multiple Instance Learning": batch_size=1, an ensemble
# expects: equal
import keras
import numpy as np
from keras import layers, ops
from collections import Counter
keras.utils.set_random_seed(2)
rng = np.random.default_rng(2)
BAG = 3
def create_bags(n):
    bags = [[], [], []]; y = []
    for _ in range(n):
        b = rng.normal(size=(BAG, 4)); y.append([float(b.sum(1).max() > 2)])
        for i in range(BAG): bags[i].append(b[i])
    return [np.array(b) for b in bags], np.array(y)
train_data, train_labels = create_bags(13)
val_data, val_labels = create_bags(5)

class MILAttentionLayer(layers.Layer):
    def __init__(self, weight_params_dim, use_gated=False, **kwargs):
        super().__init__(**kwargs)
        self.weight_params_dim, self.use_gated = weight_params_dim, use_gated
    def build(self, input_shape):
        input_dim = input_shape[0][1]
        self.v_weight_params = self.add_weight(shape=(input_dim, self.weight_params_dim), name="v", trainable=True, regularizer=keras.regularizers.L2(0.01))
        self.w_weight_params = self.add_weight(shape=(self.weight_params_dim, 1), name="w", trainable=True)
        self.u_weight_params = self.add_weight(shape=(input_dim, self.weight_params_dim), name="u", trainable=True)
    def call(self, inputs):
        instances = [self.compute_attention_scores(instance) for instance in inputs]
        instances = ops.stack(instances)
        alpha = ops.softmax(instances, axis=0)
        return [alpha[i] for i in range(alpha.shape[0])]
    def compute_attention_scores(self, instance):
        original_instance = instance
        instance = ops.tanh(ops.tensordot(instance, self.v_weight_params, axes=1))
        instance = instance * ops.sigmoid(ops.tensordot(original_instance, self.u_weight_params, axes=1))
        return ops.tensordot(instance, self.w_weight_params, axes=1)

def create_model(instance_shape):
    inputs, embeddings = [], []
    s1, s2 = layers.Dense(6, activation="relu"), layers.Dense(5, activation="relu")
    for _ in range(BAG):
        inp = layers.Input(instance_shape)
        inputs.append(inp); embeddings.append(s2(s1(layers.Flatten()(inp))))
    alpha = MILAttentionLayer(weight_params_dim=4, use_gated=True, name="alpha")(embeddings)
    multiply_layers = [layers.multiply([alpha[i], embeddings[i]]) for i in range(len(alpha))]
    output = layers.Dense(2, activation="softmax")(layers.concatenate(multiply_layers, axis=1))
    return keras.Model(inputs, output)

def compute_class_weights(labels):
    neg, pos = len(np.where(labels == 0)[0]), len(np.where(labels == 1)[0])
    return {0: (1 / neg) * ((neg + pos) / 2), 1: (1 / pos) * ((neg + pos) / 2)}

def train(train_data, train_labels, val_data, val_labels, model, i):
    file_path = f"best_model_{i}.weights.h5"
    mc = keras.callbacks.ModelCheckpoint(file_path, monitor="val_loss", verbose=0, mode="min", save_best_only=True, save_weights_only=True)
    es = keras.callbacks.EarlyStopping(monitor="val_loss", patience=10, mode="min")
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    h = model.fit(train_data, train_labels, validation_data=(val_data, val_labels), epochs=2, class_weight=compute_class_weights(train_labels), batch_size=1, callbacks=[es, mc], verbose=0, shuffle=False)
    for k, v in h.history.items():
        print(f"{k} {i} =", v[-1])
    model.load_weights(file_path)
    return model
models = [train(train_data, train_labels, val_data, val_labels, create_model((4,)), i) for i in range(2)]
for i, model in enumerate(models):
    pred = model.predict(val_data, verbose=0)
    inter = keras.Model(model.input, model.get_layer("alpha").output).predict(val_data, verbose=0)
    loss, acc = model.evaluate(val_data, val_labels, verbose=0)
    print(f"p{i} =", float(pred[:, 0].sum()), f" alpha{i} =", float(np.squeeze(np.swapaxes(inter, 1, 0))[:, 0].sum()), f" loss{i} =", loss, f" acc{i} =", acc)
