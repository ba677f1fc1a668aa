# after: Keras's example "Simple MNIST convnet"
# expects: near 0.3: each replica drops units of its own
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(812)

# Model / data parameters
num_classes = 10
input_shape = (8, 8, 1)

# Load the data and split it between train and test sets
digits = load_digits()
x_train, y_train = digits.images[:800], digits.target[:800]
x_test, y_test = digits.images[800:1000], digits.target[800:1000]

# Scale images to the [0, 1] range
x_train = x_train.astype("float32") / 16
x_test = x_test.astype("float32") / 16
# Make sure images have shape (8, 8, 1)
x_train = np.expand_dims(x_train, -1)
x_test = np.expand_dims(x_test, -1)
print("x_train shape:", x_train.shape)

# convert class vectors to binary class matrices
y_train = keras.utils.to_categorical(y_train, num_classes)
y_test = keras.utils.to_categorical(y_test, num_classes)

with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input(shape=input_shape),
            layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Conv2D(16, kernel_size=(2, 2), activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(num_classes, activation="softmax"),
        ]
    )
model.summary(print_fn=lambda line, **_: None)

batch_size = 64
epochs = 3
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(
    x_train, y_train, batch_size=batch_size, epochs=epochs, validation_split=0.1, verbose=2)
for loss in history.history["loss"]:
    print("train loss =", loss)

score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
