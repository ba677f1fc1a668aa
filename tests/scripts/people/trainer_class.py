# after: a research repository: absl flags, logging, a Trainer class whose methods are tf.functions
# expects: equal
# shows: INFO|absl
import os

import numpy as np
import tensorflow as tf
from absl import app, flags, logging
from sklearn.datasets import load_digits

FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 64, "Global batch size.")
flags.DEFINE_integer("epochs", 3, "Epochs.")
flags.DEFINE_float("learning_rate", 0.05, "Peak learning rate.")
flags.DEFINE_string("model_dir", "model_dir", "Where to write checkpoints.")


class Mlp(tf.Module):
    def __init__(self, sizes, name=None):
        super().__init__(name=name)
        self.layers = [tf.keras.layers.Dense(size) for size in sizes]

    @tf.Module.with_name_scope
    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = tf.nn.relu(layer(x))
        return self.layers[-1](x)


class Trainer:
    def __init__(self, strategy, config):
        self.strategy = strategy
        self.batch_size = config["batch_size"]
        with strategy.scope():
            self.model = Mlp([32, 10])
            self.model(tf.zeros((1, 64), tf.float64))
            self.variables = self.model.trainable_variables
            self.keras_variables = [v for layer in self.model.layers for v in layer.trainable_variables]
            self.optimizer = tf.keras.optimizers.SGD(
                tf.keras.optimizers.schedules.CosineDecay(config["learning_rate"], 30), momentum=0.9)
            self.optimizer.build(self.keras_variables)
            self.loss_metric = tf.keras.metrics.Mean("loss")
            self.accuracy = tf.keras.metrics.SparseCategoricalAccuracy("accuracy")
            self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False)

    def loss_fn(self, labels, logits):
        ce = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        l2 = tf.add_n([tf.nn.l2_loss(v) for v in self.keras_variables if len(v.shape) > 1])
        return tf.reduce_sum(ce) / self.batch_size + 1e-4 * l2 / self.strategy.num_replicas_in_sync, ce

    def replica_step(self, images, labels):
        with tf.GradientTape() as tape:
            logits = self.model(images)
            loss, ce = self.loss_fn(labels, logits)
        grads = tape.gradient(loss, self.keras_variables)
        self.optimizer.apply_gradients(zip(grads, self.keras_variables))
        self.loss_metric.update_state(ce)
        self.accuracy.update_state(labels, logits)

    @tf.function
    def train_steps(self, iterator, steps):
        for _ in tf.range(steps):
            self.strategy.run(self.replica_step, args=next(iterator))
            self.global_step.assign_add(1)

    def evaluate(self, dataset):
        total, right = 0, 0
        for images, labels in dataset:
            right += int(tf.reduce_sum(tf.cast(tf.argmax(self.model(images), -1) == labels, tf.int32)))
            total += len(labels)
        return right / total


def main(argv):
    del argv
    tf.keras.utils.set_random_seed(0)
    os.makedirs(FLAGS.model_dir, exist_ok=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    trainer = Trainer(strategy, {"batch_size": FLAGS.batch_size, "learning_rate": FLAGS.learning_rate})
    x, y = load_digits(return_X_y=True)
    train = tf.data.Dataset.from_tensor_slices((x[:640] / 16, y[:640]))
    train = train.shuffle(640, seed=1).repeat().batch(FLAGS.batch_size, drop_remainder=True)
    iterator = iter(strategy.experimental_distribute_dataset(train))
    test = tf.data.Dataset.from_tensor_slices((x[640:800] / 16, y[640:800])).batch(40)
    for epoch in range(FLAGS.epochs):
        trainer.train_steps(iterator, tf.constant(10))
        logging.info("step %d", trainer.global_step.numpy())
        print(f"epoch {epoch}: loss = {trainer.loss_metric.result().numpy()}, "
              f"accuracy = {trainer.accuracy.result().numpy()}")
        trainer.loss_metric.reset_state()
        trainer.accuracy.reset_state()
    print("eval =", trainer.evaluate(test))
    print("steps =", int(trainer.global_step))


if __name__ == "__main__":
    app.run(main)
