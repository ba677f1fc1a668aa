# after: TensorFlow's tutorial "Save and load a model using a distribution strategy"
# expects: equal
# floatx: float32: the signature of the saved model is called with float32 images
import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

multi_worker_strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(0)


def get_data():
    digits = load_digits()
    images = (digits.images / 16.0).astype("float32")[..., None]
    train = tf.data.Dataset.from_tensor_slices((images[:512], digits.target[:512]))
    test = tf.data.Dataset.from_tensor_slices((images[512:640], digits.target[512:640]))
    return train.cache().shuffle(1000, seed=1).batch(64), test.batch(32)


def get_model():
    with multi_worker_strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Input((8, 8, 1)),
                tf.keras.layers.Conv2D(8, 3, activation="relu"),
                tf.keras.layers.MaxPooling2D(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(10),
            ]
        )
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=tf.keras.optimizers.Adam(),
            metrics=[tf.metrics.SparseCategoricalAccuracy()],
        )
        return model


model = get_model()
train_dataset, eval_dataset = get_data()
history = model.fit(train_dataset, epochs=2, verbose=0)
print("loss =", history.history["loss"][-1])

keras_model_path = "/tmp/keras_save.keras" if False else "keras_save.keras"
model.save(keras_model_path)
restored_keras_model = tf.keras.models.load_model(keras_model_path)
print("fit without strategy:", restored_keras_model.fit(
    train_dataset.take(2), epochs=1, verbose=0).history.keys())

another_strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
with another_strategy.scope():
    restored_keras_model_ds = tf.keras.models.load_model(keras_model_path)
    print("one device loss =", restored_keras_model_ds.evaluate(eval_dataset, verbose=0)[0])

model = get_model()
saved_model_path = "tf_save"
tf.saved_model.save(model, saved_model_path)
DEFAULT_FUNCTION_KEY = "serving_default"
loaded = tf.saved_model.load(saved_model_path)
inference_func = loaded.signatures[DEFAULT_FUNCTION_KEY]
predict_dataset = eval_dataset.map(lambda image, label: image)
total = 0.0
for batch in predict_dataset.take(1):
    total += float(tf.reduce_sum(list(inference_func(batch).values())[0]))
print("inference =", total)
