# after: TensorFlow's guide "Mixed precision": a policy for all, a loop with LossScaleOptimizer
# expects: equal to 0.03: half precision rounds each worker's part by itself
# floatx: float32: the policy says what is computed in
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow import keras
from tensorflow.keras import layers, mixed_precision

strategy = tf.distribute.MultiWorkerMirroredStrategy()
policy = mixed_precision.Policy("mixed_float16")
mixed_precision.set_global_policy(policy)
keras.utils.set_random_seed(1)
print("Compute dtype: %s" % policy.compute_dtype)
x, y = load_digits(return_X_y=True)
x_train, y_train, x_test, y_test = x[:384] / 16, y[:384], x[384:512] / 16, y[384:512]


def create():
    inputs = keras.Input(shape=(64,), name="digits")
    h = layers.Dense(32, activation="relu", name="dense_1")(inputs)
    h = layers.Dense(10, name="dense_logits")(h)
    outputs = layers.Activation("softmax", dtype="float32", name="predictions")(h)
    return keras.Model(inputs=inputs, outputs=outputs)


with strategy.scope():
    model = create()
    model.compile(loss="sparse_categorical_crossentropy", optimizer=keras.optimizers.RMSprop(),
                  metrics=["accuracy"])
history = model.fit(x_train, y_train, batch_size=64, epochs=3, verbose=0)
test_scores = model.evaluate(x_test, y_test, verbose=0)
print("loss =", history.history["loss"][-1])
print("Test loss:", test_scores[0])
print("iterations =", int(model.optimizer.iterations))

with strategy.scope():
    model = create()
    optimizer = mixed_precision.LossScaleOptimizer(keras.optimizers.RMSprop(), initial_scale=1024.0)
    optimizer.build(model.trainable_variables)
    loss_object = keras.losses.SparseCategoricalCrossentropy(reduction="none")

dataset = tf.data.Dataset.from_tensor_slices((x_train.astype("float32"), y_train)).batch(64)


def step_fn(x, y):
    with tf.GradientTape() as tape:
        predictions = model(x)
        loss = tf.nn.compute_average_loss(loss_object(y, predictions), global_batch_size=64)
        scaled_loss = optimizer.scale_loss(loss)
    scaled_gradients = tape.gradient(scaled_loss, model.trainable_variables)
    optimizer.apply_gradients(zip(scaled_gradients, model.trainable_variables))
    return loss


@tf.function
def train_step(x, y):
    return strategy.reduce("SUM", strategy.run(step_fn, args=(x, y)), axis=None)


for epoch in range(2):
    epoch_loss = keras.metrics.Mean()
    for x, y in strategy.experimental_distribute_dataset(dataset):
        epoch_loss(train_step(x, y))
    print("Epoch {}: loss={}".format(epoch, epoch_loss.result()))
