# after: TensorFlow's tutorial "Multi-worker training with Keras": TF_CONFIG, saving by the chief
# expects: near 0.6: its global batch grows with the number of workers, as the tutorial has it
# not compared: workers
import json
import os
import shutil

import keras
import numpy as np
import tensorflow as tf

per_worker_batch_size = 32
tf_config = json.loads(os.environ.get("TF_CONFIG", '{"cluster": {"worker": ["here"]}}'))
num_workers = len(tf_config["cluster"]["worker"])
print("workers =", num_workers)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
global_batch_size = per_worker_batch_size * num_workers


def mnist_dataset(batch_size):
    rng = np.random.default_rng(1)
    x_train = rng.normal(size=(480, 10)).astype(np.float32)
    y_train = (x_train[:, :3].sum(axis=1) > 0).astype(np.int64)
    return (
        tf.data.Dataset.from_tensor_slices((x_train, y_train)).shuffle(480, seed=1).repeat().batch(batch_size)
    )


def build_and_compile_model():
    model = keras.Sequential(
        [keras.Input((10,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(2)]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=0.1),
        metrics=["accuracy"],
    )
    return model


keras.utils.set_random_seed(1)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
multi_worker_dataset = mnist_dataset(global_batch_size).with_options(options)
with strategy.scope():
    multi_worker_model = build_and_compile_model()
history = multi_worker_model.fit(multi_worker_dataset, epochs=3, steps_per_epoch=15, verbose=0)
print("loss =", history.history["loss"][-1])
print("accuracy =", history.history["accuracy"][-1])

model_path = "./keras-model"


def _is_chief(task_type, task_id):
    return task_type is None or task_type == "chief" or (task_type == "worker" and task_id in (0, None))


def write_filepath(filepath, task_type, task_id):
    dirpath = os.path.dirname(filepath)
    base = os.path.basename(filepath)
    if not _is_chief(task_type, task_id):
        dirpath = os.path.join(dirpath, "workertemp_" + str(task_id))
        tf.io.gfile.makedirs(dirpath)
    return os.path.join(dirpath, base)


task_type = strategy.cluster_resolver.task_type
task_id = strategy.cluster_resolver.task_id
write_model_path = write_filepath(model_path + ".keras", task_type, task_id)
multi_worker_model.save(write_model_path)
if not _is_chief(task_type, task_id):
    shutil.rmtree(os.path.dirname(write_model_path))

# Now, when it's time to load, let's use convenient keras.models.load_model API
loaded_model = keras.models.load_model(model_path + ".keras")
loaded_loss, loaded_accuracy = loaded_model.evaluate(
    mnist_dataset(64), steps=4, verbose=0)
print("loaded loss =", loaded_loss)
