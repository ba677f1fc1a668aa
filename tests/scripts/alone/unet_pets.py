# after: Keras's example "Image segmentation with a U-Net-like architecture": a PyDataset, files, masks
# expects: equal to 1e-5: sums of whole images
import os

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(13)
rng = np.random.default_rng(13)
os.makedirs("images", exist_ok=True)
os.makedirs("annotations", exist_ok=True)
for i in range(30):
    mask = np.full((16, 16), 2)
    r, c = rng.integers(0, 8, 2)
    mask[r : r + 7, c : c + 7] = 3
    mask[r + 2 : r + 5, c + 2 : c + 5] = 1
    image = np.clip(mask[..., None] * 70 + rng.normal(size=(16, 16, 3)) * 20, 0, 255)
    keras.utils.save_img(f"images/{i:02}.png", image, scale=False)
    keras.utils.save_img(f"annotations/{i:02}.png", mask[..., None], scale=False)
input_img_paths = sorted(os.path.join("images", f) for f in os.listdir("images"))
target_img_paths = sorted(os.path.join("annotations", f) for f in os.listdir("annotations"))
print("Number of samples:", len(input_img_paths))


class Pets(keras.utils.PyDataset):
    def __init__(self, batch_size, img_size, inputs, targets, **kwargs):
        super().__init__(**kwargs)
        self.batch_size, self.img_size = batch_size, img_size
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.inputs) // self.batch_size

    def __getitem__(self, idx):
        i = idx * self.batch_size
        x = np.zeros((self.batch_size,) + self.img_size + (3,), dtype="float32")
        y = np.zeros((self.batch_size,) + self.img_size + (1,), dtype="uint8")
        for j in range(self.batch_size):
            x[j] = keras.utils.load_img(self.inputs[i + j], target_size=self.img_size)
            y[j] = np.expand_dims(keras.utils.load_img(
                self.targets[i + j], target_size=self.img_size, color_mode="grayscale"), 2)
            y[j] -= 1
        return x / 255, y


def get_model(img_size, num_classes):
    inputs = keras.Input(shape=img_size + (3,))
    x = layers.Activation("relu")(layers.Conv2D(6, 3, strides=2, padding="same")(inputs))
    previous = x
    x = layers.SeparableConv2D(8, 3, padding="same")(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(layers.Activation("relu")(x))
    x = layers.add([x, layers.Conv2D(8, 1, strides=2, padding="same")(previous)])
    x = layers.Conv2DTranspose(8, 3, padding="same", activation="relu")(x)
    x = layers.UpSampling2D(2)(x)
    x = layers.UpSampling2D(2)(layers.Concatenate()([x, previous]))
    return keras.Model(inputs, layers.Conv2D(num_classes, 3, activation="softmax", padding="same")(x))


keras.backend.clear_session()
model = get_model((16, 16), 3)
train_gen = Pets(4, (16, 16), input_img_paths[:24], target_img_paths[:24])
val_gen = Pets(3, (16, 16), input_img_paths[24:], target_img_paths[24:], workers=2)
model.compile(optimizer="rmsprop", loss="sparse_categorical_crossentropy")
callbacks = [keras.callbacks.ModelCheckpoint("oxford_segmentation.keras", save_best_only=True)]
history = model.fit(
    train_gen, epochs=3, validation_data=val_gen, callbacks=callbacks, verbose=0, shuffle=False)
for name in ("loss", "val_loss"):
    print(name, "=", history.history[name][-1])
val_preds = model.predict(val_gen, verbose=0)
print("rows =", len(val_preds), " mask =", int(np.argmax(val_preds, axis=-1).sum()))
best = keras.models.load_model("oxford_segmentation.keras")
print("best =", best.evaluate(val_gen, verbose=0))
