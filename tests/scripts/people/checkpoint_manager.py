# after: TensorFlow's guide "Training checkpoints": CheckpointManager, restored twice
# expects: equal
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(2)


class Net(tf.keras.Model):
    """A simple linear model."""

    def __init__(self):
        super().__init__()
        self.l1 = tf.keras.layers.Dense(5)

    def call(self, x):
        return self.l1(x)


def toy_dataset():
    inputs = tf.range(12.0)[:, None] / 12
    labels = inputs * 5.0 + tf.range(5.0)[None, :]
    return tf.data.Dataset.from_tensor_slices(dict(x=inputs, y=labels)).repeat().batch(6)


def make():
    with strategy.scope():
        net = Net()
        net(tf.zeros((1, 1)))
        opt = tf.keras.optimizers.Adam(0.1)
        opt.build(net.trainable_variables)
    return net, opt


def train_step(net, example, optimizer):
    """Trains `net` on `example` using `optimizer`."""
    with tf.GradientTape() as tape:
        output = net(example["x"])
        loss = tf.reduce_sum(tf.abs(output - tf.cast(example["y"], output.dtype))) / (6 * 5)
    variables = net.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables))
    return loss


def train_and_checkpoint(steps):
    net, opt = make()
    step = tf.Variable(1)
    ckpt = tf.train.Checkpoint(step=step, optimizer=opt, net=net)
    manager = tf.train.CheckpointManager(ckpt, "./tf_ckpts", max_to_keep=3)
    ckpt.restore(manager.latest_checkpoint)
    if manager.latest_checkpoint:
        print("Restored from {}".format(manager.latest_checkpoint))
    else:
        print("Initializing from scratch.")

    @tf.function
    def distributed_step(example):
        losses = strategy.run(train_step, args=(net, example, opt))
        return strategy.reduce("SUM", losses, axis=None)

    iterator = iter(strategy.experimental_distribute_dataset(toy_dataset()))
    for _ in range(steps):
        loss = distributed_step(next(iterator))
        ckpt.step.assign_add(1)
        if int(ckpt.step) % 5 == 0:
            save_path = manager.save()
            print("Saved checkpoint for step {}: {}".format(int(ckpt.step), save_path))
            print("loss = {:1.12f}".format(loss.numpy()))
    return net, manager


train_and_checkpoint(12)
net, manager = train_and_checkpoint(12)
print([path.split("/")[-1] for path in manager.checkpoints])
print("kernel =", float(np.sum(net.l1.kernel.numpy())))

# A part of the checkpoint, by itself.
to_restore = tf.Variable(tf.zeros([5], tf.as_dtype(net.l1.bias.dtype)))
fake_layer = tf.train.Checkpoint(step=(number := tf.Variable(0)))
fake_layer.restore(tf.train.latest_checkpoint("./tf_ckpts/")).expect_partial()
print("restored step =", int(number))
reader = tf.train.load_checkpoint("./tf_ckpts/")
print("variables =", len(reader.get_variable_to_shape_map()) > 5 and 1)
