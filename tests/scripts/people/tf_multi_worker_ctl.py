# after: TensorFlow's tutorial "Custom training loop with Keras and MultiWorkerMirroredStrategy"
# expects: equal to 1e-4: its data is float32
# floatx: float32: the loss is averaged in float32
import os

import numpy as np
import tensorflow as tf

num_epochs, num_steps_per_epoch = 3, 6
global_batch_size = 48


def mnist_dataset():
    rng = np.random.RandomState(3)
    x = rng.uniform(size=(288, 20)).astype(np.float32)
    y = (x[:, :10].sum(1) > x[:, 10:].sum(1)).astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((x, y))


def dataset_fn(global_batch_size, input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = mnist_dataset()
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size)


def build_cnn_model():
    return tf.keras.Sequential(
        [tf.keras.Input((20,)), tf.keras.layers.Dense(16, activation="relu"), tf.keras.layers.Dense(2)]
    )


checkpoint_dir = os.path.join(".", "ckpt")


def _is_chief(task_type, task_id, cluster_spec):
    return (task_type is None or task_type == "chief"
            or (task_type == "worker" and task_id == 0 and "chief" not in cluster_spec.as_dict()))


def write_filepath(filepath, task_type, task_id, cluster_spec):
    if not _is_chief(task_type, task_id, cluster_spec):
        filepath = os.path.join(filepath, "workertemp_" + str(task_id))
        tf.io.gfile.makedirs(filepath)
    return filepath


strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(5)
with strategy.scope():
    multi_worker_model = build_cnn_model()
    multi_worker_dataset = strategy.distribute_datasets_from_function(
        lambda input_context: dataset_fn(global_batch_size, input_context))
    optimizer = tf.keras.optimizers.RMSprop(learning_rate=0.01)
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")


@tf.function
def train_step(iterator):
    def step_fn(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            predictions = multi_worker_model(x, training=True)
            per_example_loss = tf.keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="none")(y, predictions)
            loss = tf.nn.compute_average_loss(per_example_loss)
        grads = tape.gradient(loss, multi_worker_model.trainable_variables)
        optimizer.apply_gradients(zip(grads, multi_worker_model.trainable_variables))
        train_accuracy.update_state(y, predictions)
        return loss

    per_replica_losses = strategy.run(step_fn, args=(next(iterator),))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)


epoch = tf.Variable(initial_value=tf.constant(0, dtype=tf.dtypes.int64), name="epoch")
step_in_epoch = tf.Variable(initial_value=tf.constant(0, dtype=tf.dtypes.int64), name="step_in_epoch")
resolver = strategy.cluster_resolver
task_type, task_id, cluster_spec = resolver.task_type, resolver.task_id, resolver.cluster_spec()
checkpoint = tf.train.Checkpoint(model=multi_worker_model, epoch=epoch, step_in_epoch=step_in_epoch)
write_checkpoint_dir = write_filepath(checkpoint_dir, task_type, task_id, cluster_spec)
checkpoint_manager = tf.train.CheckpointManager(checkpoint, directory=write_checkpoint_dir, max_to_keep=1)
latest_checkpoint = tf.train.latest_checkpoint(checkpoint_dir)
if latest_checkpoint:
    checkpoint.restore(latest_checkpoint)

while epoch.numpy() < num_epochs:
    iterator = iter(multi_worker_dataset)
    total_loss, num_batches = 0.0, 0
    while step_in_epoch.numpy() < num_steps_per_epoch:
        total_loss += train_step(iterator)
        num_batches += 1
        step_in_epoch.assign_add(1)
    train_loss = total_loss / num_batches
    print("Epoch: %d, accuracy: %f, train_loss: %f." % (epoch.numpy(), train_accuracy.result(), train_loss))
    train_accuracy.reset_state()
    checkpoint_manager.save()
    if not _is_chief(task_type, task_id, cluster_spec):
        tf.io.gfile.rmtree(write_checkpoint_dir)
    epoch.assign_add(1)
    step_in_epoch.assign(0)

print("weights =", float(sum(tf.reduce_sum(tf.abs(w)) for w in multi_worker_model.get_weights())))
