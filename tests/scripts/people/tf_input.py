# after: TensorFlow's guide "Distributed input", its snippets in a row
# expects: equal
# not compared: replicas
import tensorflow as tf

mirrored_strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("replicas =", mirrored_strategy.num_replicas_in_sync)
global_batch_size = 12

dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(100).batch(global_batch_size)
dist_dataset = mirrored_strategy.experimental_distribute_dataset(dataset)


@tf.function
def train_step(inputs):
    features, labels = inputs
    return tf.reduce_sum(labels - 0.3 * features)


for x in dist_dataset:
    per_replica = mirrored_strategy.run(train_step, args=(x,))
    print("sum =", mirrored_strategy.reduce("SUM", per_replica, axis=None).numpy())
    break

# A loop inside of a tf.function, over the whole dataset, whose last batch is short.
dataset = tf.data.Dataset.range(50).map(lambda i: tf.cast(i, tf.float64)).batch(global_batch_size)
dist_dataset = mirrored_strategy.experimental_distribute_dataset(dataset)


@tf.function
def train_fn(dist_dataset):
    total = tf.constant(0.0, tf.float64)
    for x in dist_dataset:
        sums = mirrored_strategy.run(lambda batch: tf.reduce_sum(batch), args=(x,))
        total += mirrored_strategy.reduce("SUM", sums, axis=None)
    return total


print("total =", train_fn(dist_dataset).numpy())

# get_next_as_optional
iterator = iter(dist_dataset)


@tf.function
def train_some(iterator):
    total = tf.constant(0.0, tf.float64)
    for _ in tf.range(4):
        optional_data = iterator.get_next_as_optional()
        if not optional_data.has_value():
            break
        sums = mirrored_strategy.run(lambda batch: tf.reduce_sum(batch), args=(optional_data.get_value(),))
        total += mirrored_strategy.reduce("SUM", sums, axis=None)
    return total


print("some =", train_some(iterator).numpy())


def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = tf.data.Dataset.range(48).shard(
        input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(batch_size).prefetch(2)


dist_dataset = mirrored_strategy.distribute_datasets_from_function(dataset_fn)
for x in dist_dataset:
    means = mirrored_strategy.run(lambda b: tf.reduce_mean(tf.cast(b, tf.float64)), args=(x,))
    print("mean =", mirrored_strategy.reduce("MEAN", means, axis=None).numpy())


def value_fn(ctx):
    return tf.constant(1.0)


distributed_values = mirrored_strategy.experimental_distribute_values_from_function(value_fn)
print("ones per replica =", float(mirrored_strategy.reduce("MEAN", distributed_values, axis=None)))
