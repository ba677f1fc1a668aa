# after: Keras's CIFAR-10 ResNet of old: BatchNormalization after each convolution, He, L2
# expects: near 0.2: BatchNormalization normalizes each replica's part of the batch by itself (docs/parity.md)
from __future__ import print_function

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow.keras.layers import (
    Activation, AveragePooling2D, BatchNormalization, Conv2D, Dense, Flatten, Input)
from tensorflow.keras.models import Model
from tensorflow.keras.optimizers import Adam
from tensorflow.keras.regularizers import l2

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(0)

# Training parameters
batch_size = 64
epochs = 3
num_classes = 10
subtract_pixel_mean = True
digits = load_digits()
x_train, y_train = digits.images[:640, ..., None].astype("float32") / 16, digits.target[:640, None]
x_test, y_test = digits.images[640:768, ..., None].astype("float32") / 16, digits.target[640:768, None]
if subtract_pixel_mean:
    x_train_mean = np.mean(x_train, axis=0)
    x_train -= x_train_mean
    x_test -= x_train_mean
y_train = tf.keras.utils.to_categorical(y_train, num_classes)
y_test = tf.keras.utils.to_categorical(y_test, num_classes)


def lr_schedule(epoch):
    lr = 1e-3
    if epoch > 80:
        lr *= 1e-1
    return lr


def resnet_layer(inputs, num_filters=8, kernel_size=3, strides=1, activation="relu", batch_normalization=True):
    x = Conv2D(num_filters, kernel_size=kernel_size, strides=strides, padding="same",
               kernel_initializer="he_normal", kernel_regularizer=l2(1e-4))(inputs)
    if batch_normalization:
        x = BatchNormalization()(x)
    if activation is not None:
        x = Activation(activation)(x)
    return x


def resnet_v1(input_shape, num_classes=10):
    inputs = Input(shape=input_shape)
    x = resnet_layer(inputs=inputs)
    y = resnet_layer(inputs=x)
    y = resnet_layer(inputs=y, activation=None)
    x = tf.keras.layers.add([x, y])
    x = Activation("relu")(x)
    x = AveragePooling2D(pool_size=4)(x)
    y = Flatten()(x)
    outputs = Dense(num_classes, activation="softmax", kernel_initializer="he_normal")(y)
    return Model(inputs=inputs, outputs=outputs)


with strategy.scope():
    model = resnet_v1(input_shape=x_train.shape[1:])
    model.compile(loss="categorical_crossentropy", optimizer=Adam(learning_rate=lr_schedule(0)),
                  metrics=["accuracy"])
history = model.fit(x_train, y_train, batch_size=batch_size, epochs=epochs, validation_data=(x_test, y_test),
                    shuffle=True, verbose=0, callbacks=[tf.keras.callbacks.LearningRateScheduler(lr_schedule)])
print("loss =", history.history["loss"][-1])
scores = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", scores[0])
