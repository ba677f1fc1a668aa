# after: Keras's example "MixUp augmentation": two shuffled datasets zipped, random numbers in map
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(42)
digits = load_digits()
x_train = digits.images[:384, ..., None] / 16.0
y_train = tf.one_hot(digits.target[:384], 10, dtype="float64")
BATCH_SIZE = 48

train_ds_one = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(BATCH_SIZE * 8, seed=1).batch(BATCH_SIZE)
train_ds_two = tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(BATCH_SIZE * 8, seed=2).batch(BATCH_SIZE)
# Because we will be mixing up the images and their corresponding labels, we will be
# combining two shuffled datasets from the same training data.
train_ds = tf.data.Dataset.zip((train_ds_one, train_ds_two))


def sample_beta_distribution(size, concentration_0=0.2, concentration_1=0.2):
    gamma_1_sample = tf.random.stateless_gamma([size], seed=(1, 2), alpha=concentration_1, dtype=tf.float64)
    gamma_2_sample = tf.random.stateless_gamma([size], seed=(3, 4), alpha=concentration_0, dtype=tf.float64)
    return gamma_1_sample / (gamma_1_sample + gamma_2_sample)


def mix_up(ds_one, ds_two, alpha=0.2):
    # Unpack two datasets
    images_one, labels_one = ds_one
    images_two, labels_two = ds_two
    batch_size = tf.shape(images_one)[0]
    # Sample lambda and reshape it to do the mixup
    l = sample_beta_distribution(batch_size, alpha, alpha)
    x_l = tf.reshape(l, (batch_size, 1, 1, 1))
    y_l = tf.reshape(l, (batch_size, 1))
    # Perform mixup on both images and labels by combining a pair of images/labels
    # (one from each dataset) into one image/label
    images = images_one * x_l + images_two * (1 - x_l)
    labels = labels_one * y_l + labels_two * (1 - y_l)
    return (images, labels)


train_ds_mu = train_ds.map(lambda ds_one, ds_two: mix_up(ds_one, ds_two, alpha=0.2),
                           num_parallel_calls=tf.data.AUTOTUNE)
with strategy.scope():
    model = keras.Sequential(
        [layers.Input((8, 8, 1)), layers.Conv2D(8, 3, activation="relu"), layers.Flatten(),
         layers.Dense(10, activation="softmax")])
    model.compile(loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1), optimizer="adam",
                  metrics=["accuracy", keras.metrics.CategoricalCrossentropy()])
history = model.fit(train_ds_mu, epochs=3, verbose=0, validation_data=(x_train[:60], y_train[:60]))
for key, values in history.history.items():
    print(key, "=", values[-1])
