# after: Keras's guide "The Functional API": many inputs, many outputs, loss_weights, a toy ResNet
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(21)

num_tags, num_words, num_departments = 6, 50, 4

with strategy.scope():
    title_input = keras.Input(shape=(None,), name="title")
    body_input = keras.Input(shape=(None,), name="body")
    tags_input = keras.Input(shape=(num_tags,), name="tags")
    title_features = layers.Embedding(num_words, 8)(title_input)
    body_features = layers.Embedding(num_words, 8)(body_input)
    title_features = layers.LSTM(12)(title_features)
    body_features = layers.LSTM(6)(body_features)
    x = layers.concatenate([title_features, body_features, tags_input])
    priority_pred = layers.Dense(1, name="priority")(x)
    department_pred = layers.Dense(num_departments, name="department")(x)
    model = keras.Model(
        inputs=[title_input, body_input, tags_input],
        outputs={"priority": priority_pred, "department": department_pred},
    )
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss={
            "priority": keras.losses.BinaryCrossentropy(from_logits=True),
            "department": keras.losses.CategoricalCrossentropy(from_logits=True),
        },
        loss_weights={"priority": 1.0, "department": 0.2},
        metrics={"department": ["accuracy"]},
    )

title_data = np.random.randint(1, num_words, size=(128, 5))
body_data = np.random.randint(1, num_words, size=(128, 9))
tags_data = np.random.randint(2, size=(128, num_tags)).astype("float32")
priority_targets = np.random.random(size=(128, 1))
dept_targets = keras.utils.to_categorical(np.random.randint(num_departments, size=128), num_departments)

history = model.fit(
    {"title": title_data, "body": body_data, "tags": tags_data},
    {"priority": priority_targets, "department": dept_targets},
    epochs=2, batch_size=32, verbose=0,
)
for key in sorted(history.history):
    print(key, "=", history.history[key][-1])

with strategy.scope():
    inputs = keras.Input(shape=(12, 12, 3), name="img")
    x = layers.Conv2D(8, 3, activation="relu")(inputs)
    block_1_output = layers.MaxPooling2D(2)(x)
    x = layers.Conv2D(8, 3, activation="relu", padding="same")(block_1_output)
    block_2_output = layers.add([x, block_1_output])
    x = layers.GlobalAveragePooling2D()(block_2_output)
    outputs = layers.Dense(10)(x)
    toy_resnet = keras.Model(inputs, outputs, name="toy_resnet")
    toy_resnet.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss=keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["acc"],
    )
x_train = np.random.random((150, 12, 12, 3))
y_train = keras.utils.to_categorical(np.random.randint(10, size=150), 10)
history = toy_resnet.fit(x_train, y_train, batch_size=64, epochs=1, validation_split=0.2, verbose=0)
print("resnet loss =", history.history["loss"][0], "val_loss =", history.history["val_loss"][0])
