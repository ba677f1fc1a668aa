# after: TensorFlow's tutorial "Basic regression: Predict fuel efficiency", a notebook
# expects: equal

# # Basic regression: Predict fuel efficiency
import keras
import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(0)
np.set_printoptions(precision=3, suppress=True)

# In[2]: the data
rng = np.random.RandomState(1)
cylinders = rng.choice([4, 6, 8], 390)
horsepower = cylinders * 20 + rng.normal(0, 10, 390)
weight = cylinders * 500 + rng.normal(0, 200, 390)
mpg = 50 - 0.005 * weight - 0.05 * horsepower + rng.normal(0, 1, 390)
train_features = np.stack([cylinders, horsepower, weight], 1).astype("float32")[:300]
test_features = np.stack([cylinders, horsepower, weight], 1).astype("float32")[300:]
train_labels, test_labels = mpg[:300], mpg[300:]
test_results = {}

# In[3]: normalization
normalizer = layers.Normalization(axis=-1)
normalizer.adapt(np.array(train_features))
print("mean =", float(normalizer.mean.numpy().sum()))

# In[4]: one variable
with strategy.scope():
    horsepower_normalizer = layers.Normalization(input_shape=[1], axis=None)
    horsepower_normalizer.adapt(train_features[:, 1])
    horsepower_model = tf.keras.Sequential([horsepower_normalizer, layers.Dense(units=1)])
    horsepower_model.compile(
        optimizer=tf.keras.optimizers.Adam(learning_rate=0.1), loss="mean_absolute_error")
history = horsepower_model.fit(
    train_features[:, 1], train_labels, epochs=4, verbose=0, validation_split=0.2)
print("val_loss =", history.history["val_loss"][-1])
test_results["horsepower_model"] = horsepower_model.evaluate(test_features[:, 1], test_labels, verbose=0)

# In[5]: a deep neural network
def build_and_compile_model(train_features):
    norm = layers.Normalization(axis=-1)
    norm.adapt(train_features)
    model = keras.Sequential(
        [norm, layers.Dense(16, activation="relu"), layers.Dense(16, activation="relu"), layers.Dense(1)])
    model.compile(loss="mean_absolute_error", optimizer=tf.keras.optimizers.Adam(0.01))
    return model


with strategy.scope():
    dnn_model = build_and_compile_model(train_features)
history = dnn_model.fit(train_features, train_labels, validation_split=0.2, verbose=0, epochs=4)
print("dnn val_loss =", history.history["val_loss"][-1])
test_results["dnn_model"] = dnn_model.evaluate(test_features, test_labels, verbose=0)
for name, value in test_results.items():
    print(name, "=", value)

# In[6]: predictions, and the model again from its file
test_predictions = dnn_model.predict(test_features, verbose=0).flatten()
error = test_predictions - test_labels
print("mean error =", error.mean())
dnn_model.save("dnn_model.keras")
reloaded = tf.keras.models.load_model("dnn_model.keras")
print("reloaded =", reloaded.evaluate(test_features, test_labels, verbose=0))
