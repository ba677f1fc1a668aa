# after: Kubeflow's multi_worker_strategy-with-keras.py: argparse, TF_CONFIG, a place for each worker
# expects: equal
import argparse
import json
import os

import keras
import numpy as np
import tensorflow as tf
from keras import layers, models, optimizers


def make_datasets_unbatched(n=512):
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(n, 8, 8, 1)) * 255
    labels = (images.mean(axis=(1, 2, 3)) > 127.5).astype("int64")

    # Scaling data from (0, 255] to (0., 1.]
    def scale(image, label):
        image = tf.cast(image, tf.float64)
        image /= 255
        return image, label

    return tf.data.Dataset.from_tensor_slices((images, labels)).map(scale).cache().shuffle(n, seed=3)


def build_and_compile_cnn_model():
    model = models.Sequential()
    model.add(layers.Input((8, 8, 1)))
    model.add(layers.Conv2D(4, (3, 3), activation="relu"))
    model.add(layers.MaxPooling2D((2, 2)))
    model.add(layers.Flatten())
    model.add(layers.Dense(16, activation="relu"))
    model.add(layers.Dense(2, activation="softmax"))
    model.compile(optimizer=optimizers.Adam(), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def decay(epoch):
    if epoch < 2:
        return 1e-3
    if 2 <= epoch < 3:
        return 1e-4
    return 1e-5


def main(args):
    # MultiWorkerMirroredStrategy creates copies of all variables in the model's
    # layers on each device across all workers
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CollectiveCommunication.AUTO))
    BATCH_SIZE_GLOBAL = 64
    keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        ds_train = make_datasets_unbatched().batch(BATCH_SIZE_GLOBAL).repeat()
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        ds_train = ds_train.with_options(options)
        multi_worker_model = build_and_compile_cnn_model()

    checkpoint_prefix = os.path.join(args.checkpoint_dir, "ckpt_{epoch}.weights.h5")

    class PrintLR(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            print("\nLearning rate for epoch {} is {}".format(
                epoch + 1, float(multi_worker_model.optimizer.learning_rate.numpy())))

    callbacks = [
        keras.callbacks.ModelCheckpoint(filepath=checkpoint_prefix, save_weights_only=True),
        keras.callbacks.LearningRateScheduler(decay),
        PrintLR(),
    ]
    history = multi_worker_model.fit(ds_train, epochs=3, steps_per_epoch=6, callbacks=callbacks, verbose=2)
    print("final loss =", history.history["loss"][-1])

    def is_chief():
        tf_config = json.loads(os.environ.get("TF_CONFIG", '{"task": {"type": "worker", "index": 0}}'))
        return tf_config["task"]["index"] == 0

    if is_chief():
        model_path = os.path.join(args.saved_model_dir, "model.keras")
    else:
        # Save to a path that is unique across workers.
        model_path = os.path.join(
            args.saved_model_dir, "worker_tmp_" + os.environ.get("HOSTNAME", "pod") + os.environ.get("RANK", ""),
            "model.keras")
    os.makedirs(os.path.dirname(model_path), exist_ok=True)
    multi_worker_model.save(model_path)


if __name__ == "__main__":
    os.environ["NCCL_DEBUG"] = "INFO"
    parser = argparse.ArgumentParser()
    parser.add_argument("--saved_model_dir", type=str, default="saved_model", help="Tensorflow export directory.")
    parser.add_argument("--checkpoint_dir", type=str, default="checkpoints", help="Tensorflow checkpoint directory.")
    parser.add_argument("--seed", type=int, default=1)
    main(parser.parse_args())
