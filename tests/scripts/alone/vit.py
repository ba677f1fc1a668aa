# after: Keras's example "Image classification with Vision Transformer": Patches, best weights
# expects: equal to 1e-5: attention sums much
import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(5)
rng = np.random.default_rng(0)
x_train, y_train = rng.random((60, 12, 12, 3)), rng.integers(0, 4, (60, 1))
x_train += y_train[..., None, None] / 4
x_test, y_test = x_train[40:], y_train[40:]
image_size, patch_size, projection_dim, num_heads = 12, 4, 16, 2
num_patches = (image_size // patch_size) ** 2


class Patches(layers.Layer):
    def __init__(self, patch_size):
        super().__init__()
        self.patch_size = patch_size

    def call(self, images):
        batch_size, height, width, channels = ops.shape(images)
        patches = ops.image.extract_patches(images, size=self.patch_size)
        return ops.reshape(patches, (
            batch_size, (height // self.patch_size) * (width // self.patch_size),
            self.patch_size * self.patch_size * channels))

    def get_config(self):
        return {**super().get_config(), "patch_size": self.patch_size}


class PatchEncoder(layers.Layer):
    def __init__(self, num_patches, projection_dim):
        super().__init__()
        self.num_patches = num_patches
        self.projection = layers.Dense(units=projection_dim)
        self.position_embedding = layers.Embedding(num_patches, projection_dim)

    def call(self, patch):
        positions = ops.expand_dims(ops.arange(start=0, stop=self.num_patches, step=1), axis=0)
        return self.projection(patch) + self.position_embedding(positions)


def create_vit_classifier():
    inputs = keras.Input(shape=(12, 12, 3))
    normalization = layers.Normalization()
    normalization.adapt(x_train)
    patches = Patches(patch_size)(normalization(inputs))
    encoded = PatchEncoder(num_patches, projection_dim)(patches)
    for _ in range(2):
        x1 = layers.LayerNormalization(epsilon=1e-6)(encoded)
        attention = layers.MultiHeadAttention(num_heads, projection_dim)(x1, x1)
        x2 = layers.Add()([attention, encoded])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x3 = layers.Dense(projection_dim, activation=keras.activations.gelu)(x3)
        encoded = layers.Add()([x3, x2])
    representation = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(encoded))
    return keras.Model(inputs, layers.Dense(4)(representation))


def run_experiment(model):
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=0.003, weight_decay=0.0001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")])
    filepath = "checkpoint.weights.h5"
    best = keras.callbacks.ModelCheckpoint(
        filepath, monitor="val_accuracy", save_best_only=True, save_weights_only=True)
    history = model.fit(
        x=x_train, y=y_train, batch_size=16, epochs=3, validation_split=0.1,
        callbacks=[best], shuffle=False, verbose=0)
    model.load_weights(filepath)
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    print(f"Test accuracy: {round(accuracy * 100, 2)}")
    return history


history = run_experiment(create_vit_classifier())
for item in ("loss", "accuracy"):
    for value in history.history["val_" + item]:
        print(item, "=", value)
