# after: a forum answer: gradient accumulation, clipping, EMA and weight decay by optimizer arguments
# expects: equal
import keras
import numpy as np

import tfrun

strategy = tfrun.strategy()
rng = np.random.default_rng(10)
x = rng.normal(size=(256, 10))
y = np.sin(x.sum(axis=1, keepdims=True))

OPTIMIZERS = {
    "accumulate": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, global_clipnorm=0.1),
    "clipvalue": lambda: keras.optimizers.RMSprop(0.01, clipvalue=0.01),
    "ema": lambda: keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=4),
    "weight_decay": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.05),
    "lamb": lambda: keras.optimizers.Lamb(0.01),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05, l1_regularization_strength=0.01),
}


def get_model(optimizer):
    model = keras.Sequential(
        [
            keras.Input((10,)),
            keras.layers.Dense(12, activation="tanh", kernel_constraint=keras.constraints.MaxNorm(1.0)),
            keras.layers.Dense(1, kernel_regularizer="l2", activity_regularizer="l1"),
        ]
    )
    model.compile(optimizer=optimizer, loss="mse")
    return model


for name, make in OPTIMIZERS.items():
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    with strategy.scope():
        model = get_model(make())
    history = model.fit(x, y, batch_size=32, epochs=2, verbose=0)
    print(f"{name}: loss = {history.history['loss'][-1]}")
    print(f"{name}: weights = {sum(float(np.abs(w).sum()) for w in model.get_weights())}")
