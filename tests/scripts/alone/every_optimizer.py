# after: every optimizer of Keras's, and what one is told to do besides; each is built by a step
# expects: equal
import keras
import numpy as np

RATE = 0.02
# What needs more than a rate; of those that are also there without it a second one.
OF_ITS_OWN = {
    "SGD, momentum": lambda: keras.optimizers.SGD(RATE, momentum=0.9, nesterov=True),
    "RMSprop, centered": lambda: keras.optimizers.RMSprop(RATE, momentum=0.5, centered=True),
    "Adam, averaged": lambda: keras.optimizers.Adam(
        RATE, amsgrad=True, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3
    ),
    "Adam, accumulated": lambda: keras.optimizers.Adam(
        RATE, gradient_accumulation_steps=2, global_clipnorm=0.5
    ),
    "AdamW, scheduled": lambda: keras.optimizers.AdamW(
        keras.optimizers.schedules.CosineDecay(RATE, 12), clipnorm=0.1, weight_decay=0.01
    ),
    "LossScaleOptimizer": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(RATE), dynamic_growth_steps=3
    ),
    "MultiOptimizer": lambda: keras.optimizers.MultiOptimizer(
        lambda variable: (
            keras.optimizers.Adam(RATE)
            if variable.path.endswith("kernel")
            else keras.optimizers.SGD(RATE, momentum=0.9)
        )
    ),
}
# Of these the others are made; and what maps them is none.
NONE = ("Optimizer", "OptimizerMap")
OPTIMIZERS = {
    **{
        name: lambda one=one: one(RATE)
        for name, one in vars(keras.optimizers).items()
        if isinstance(one, type) and name not in (*NONE, *OF_ITS_OWN)
    },
    **OF_ITS_OWN,
}


def train_with_each() -> None:
    rng = np.random.RandomState(0)
    x, y = rng.rand(60, 6), rng.randint(0, 3, 60)
    numbers = rng.randint(0, 16, (60, 2))
    for name, make in OPTIMIZERS.items():
        keras.utils.set_random_seed(1)
        given, rows = keras.Input((6,)), keras.Input((2,), dtype="int32")
        looked_up = keras.layers.Flatten()(keras.layers.Embedding(16, 2)(rows))
        hidden = keras.layers.Dense(8, activation="relu")(given)
        hidden = keras.layers.Concatenate()([hidden, looked_up])
        model = keras.Model([given, rows], keras.layers.Dense(3)(hidden))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer := make(), loss)
        if name == "ScheduleFreeAdamW":  # plain Keras builds it in a trace that is thrown away
            optimizer.build(model.trainable_variables)
        model.fit([x, numbers], y, batch_size=12, epochs=3, verbose=0, shuffle=False)
        for i, values in enumerate(model.get_weights()):
            print(f"{name.replace(',', '')} weights {i} = {np.abs(values).sum():.9g}")


if __name__ == "__main__":
    train_with_each()
