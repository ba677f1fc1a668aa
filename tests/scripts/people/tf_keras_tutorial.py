# after: TensorFlow's tutorial "Distributed training with Keras", with the strategy for many workers
# expects: equal
# not compared: Number of devices
import os

import keras
import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("Number of devices: {}".format(strategy.num_replicas_in_sync))
tf.keras.utils.set_random_seed(42)

digits = load_digits()
num_train_examples, BUFFER_SIZE, BATCH_SIZE = 512, 10000, 64
mnist_train = tf.data.Dataset.from_tensor_slices((digits.images[:512, ..., None], digits.target[:512]))
mnist_test = tf.data.Dataset.from_tensor_slices((digits.images[512:700, ..., None], digits.target[512:700]))


def scale(image, label):
    image = tf.cast(image, tf.float64)
    image /= 16
    return image, label


train_dataset = mnist_train.map(scale).cache().shuffle(BUFFER_SIZE).batch(BATCH_SIZE)
eval_dataset = mnist_test.map(scale).batch(BATCH_SIZE)

with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(8, 3, activation="relu", input_shape=(8, 8, 1)),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(24, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(learning_rate=0.001),
        metrics=["accuracy"],
    )

checkpoint_dir = "./training_checkpoints"
checkpoint_prefix = os.path.join(checkpoint_dir, "ckpt_{epoch}.weights.h5")


def decay(epoch):
    if epoch < 1:
        return 1e-2
    elif epoch >= 1 and epoch < 3:
        return 1e-3
    else:
        return 1e-4


class PrintLR(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("\nLearning rate for epoch {} is {}".format(
            epoch + 1, model.optimizer.learning_rate.numpy()))


callbacks = [
    tf.keras.callbacks.ModelCheckpoint(filepath=checkpoint_prefix, save_weights_only=True),
    tf.keras.callbacks.LearningRateScheduler(decay),
    PrintLR(),
]
model.fit(train_dataset, epochs=3, callbacks=callbacks, verbose=2)
print(sorted(os.listdir(checkpoint_dir)))
model.load_weights(os.path.join(checkpoint_dir, "ckpt_3.weights.h5"))
eval_loss, eval_acc = model.evaluate(eval_dataset, verbose=0)
print("Eval loss: {}, Eval accuracy: {}".format(eval_loss, eval_acc))

path = "my_model.keras"
model.save(path)
unreplicated_model = tf.keras.models.load_model(path)
eval_loss, eval_acc = unreplicated_model.evaluate(eval_dataset, verbose=0)
print("Eval loss: {}, Eval Accuracy: {}".format(eval_loss, eval_acc))
with strategy.scope():
    replicated_model = tf.keras.models.load_model(path)
    eval_loss, eval_acc = replicated_model.evaluate(eval_dataset, verbose=0)
    print("Eval loss: {}, Eval Accuracy: {}".format(eval_loss, eval_acc))
