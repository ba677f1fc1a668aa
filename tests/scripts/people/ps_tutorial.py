# after: TensorFlow's tutorial "Parameter server training": Model.fit and a loop of its own
# expects: near 0.9: each worker takes a step when it is free, from the weights as they are then
# options: --ps 1
# floatx: float32: the tutorial's data is float32
import numpy as np
import tensorflow as tf

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
variable_partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
    min_shard_bytes=(256 << 10), max_shards=1)
strategy = tf.distribute.ParameterServerStrategy(cluster_resolver, variable_partitioner=variable_partitioner)
tf.keras.utils.set_random_seed(1)

x = np.random.RandomState(0).uniform(size=(200, 10)).astype("float32")
y = x.sum(axis=1, keepdims=True)
global_batch_size = 10


def make_dataset():
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(200, seed=1).repeat()
    return dataset.batch(global_batch_size).prefetch(2)


with strategy.scope():
    model = tf.keras.models.Sequential([tf.keras.layers.Input((10,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.05), loss="mse")
history = model.fit(make_dataset(), epochs=3, steps_per_epoch=20, verbose=0)
print("final loss small =", int(history.history["loss"][-1] < history.history["loss"][0]))
print("iterations =", int(model.optimizer.iterations))

coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    model = tf.keras.models.Sequential([tf.keras.layers.Input((10,)), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.05)
    optimizer.build(model.trainable_variables)


@tf.function
def step_fn(iterator):
    def replica_fn(batch_data, labels):
        with tf.GradientTape() as tape:
            pred = model(batch_data, training=True)
            per_example_loss = tf.reduce_mean(tf.square(pred - labels), axis=-1)
            loss = tf.nn.compute_average_loss(per_example_loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    batch_data, labels = next(iterator)
    losses = strategy.run(replica_fn, args=(batch_data, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(lambda _: make_dataset())


per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
for epoch in range(2):
    for _ in range(15):
        result = coordinator.schedule(step_fn, args=(per_worker_iterator,))
    coordinator.join()
    print("Finished epoch %d, loss finite = %d." % (epoch, np.isfinite(result.fetch())))
print("updates =", int(optimizer.iterations.numpy()))
