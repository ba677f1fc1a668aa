# after: every argument of fit, evaluate, predict and compile that is not data, one call after another
# expects: equal
# shows: Using MultiWorkerMirrored eagerly has significant overhead
import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(8)
x = rng.normal(size=(48, 4))
y = (x.sum(1) > 0).astype("int64")
valid = rng.normal(size=(20, 4)), rng.integers(0, 2, 20)
weights = rng.uniform(0.5, 2.0, 48)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
endless = dataset.repeat()


def model_of(**compiled):
    keras.utils.set_random_seed(8)
    layers = [keras.layers.Dense(6, "relu"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    given = {"optimizer": keras.optimizers.Adam(0.02), "loss": loss, "metrics": ["accuracy"]}
    model.compile(**{**given, **compiled})
    return model


FITS = {
    "validation_freq": ((x, y), {"epochs": 5, "validation_data": valid, "validation_freq": 2}),
    "validation in epochs": (
        (x, y),
        {"epochs": 5, "validation_data": valid, "validation_freq": [1, 4]},
    ),
    "initial_epoch": ((x, y), {"epochs": 4, "initial_epoch": 2}),
    "no epoch": ((x, y), {"epochs": 0}),
    "no epoch left": ((x, y), {"epochs": 2, "initial_epoch": 2}),
    "class_weight": ((x, y), {"class_weight": {0: 0.5, 1: 2.0}, "epochs": 2}),
    "validation_split": ((x, y), {"validation_split": 0.25, "epochs": 2}),
    "split and weights": ((x, y), {"validation_split": 0.25, "sample_weight": weights}),
    "validation_batch_size": (
        (x, y),
        {"validation_data": valid, "validation_batch_size": 4, "epochs": 2},
    ),
    "validation_steps": (
        (x, y),
        {"validation_data": valid, "validation_batch_size": 4, "validation_steps": 3},
    ),
    "weighted validation": (
        (x, y),
        {"validation_data": (*valid, np.linspace(0.5, 1.5, 20)), "epochs": 2},
    ),
    "steps_per_epoch of arrays": ((x, y), {"steps_per_epoch": 3, "epochs": 2}),
    "steps_per_epoch": ((endless,), {"steps_per_epoch": 4, "epochs": 3}),
    "steps and validation": (
        (endless,),
        {"steps_per_epoch": 4, "epochs": 3, "validation_data": endless, "validation_steps": 2},
    ),
    "validation of a dataset": (
        (dataset,),
        {"epochs": 3, "validation_data": dataset, "validation_freq": 3},
    ),
    "data that ends": ((dataset.repeat(2),), {"steps_per_epoch": 4, "epochs": 3}),
    "tensors": ((tf.constant(x), tf.constant(y)), {"epochs": 2}),
    "a batch of all": ((x, y), {"batch_size": 48, "epochs": 2}),
    "more than all": ((x, y), {"batch_size": 100, "epochs": 2}),
    "the batch of Keras": ((x, y), {"epochs": 2, "batch_size": None}),
}
COMPILED = {
    "steps at once": {"steps_per_execution": 3},
    "eager": {"run_eagerly": True},
    "one weight of losses": {"loss_weights": [0.5]},
    "weighted_metrics": {"weighted_metrics": ["accuracy"]},
    "no scaling": {"auto_scale_loss": False},
    "no metrics": {"metrics": None},
    "compiled by XLA": {"jit_compile": True},
    "not compiled by XLA": {"jit_compile": False},
}


def shown(name, model, history):
    for key, values in history.items():
        print(f"{name} {key} = {sum(values):.9g}")
        print(f"{name} {key} times = {len(values)}")
    for i, values in enumerate(model.get_weights()):
        print(f"{name} weights {i} = {np.abs(values).sum():.9g}")


for name, (data, more) in FITS.items():
    model = model_of()
    given = {"batch_size": 8} if len(data) == 2 else {}
    found = model.fit(*data, shuffle=False, verbose=0, **{**given, **more})
    shown(name, model, found.history)
for name, more in COMPILED.items():
    model = model_of(**more)
    found = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    shown(name, model, found.history)
    found = model.evaluate(x, y, batch_size=7, sample_weight=weights, verbose=0, return_dict=True)
    shown(f"{name} evaluate", model, {key: [value] for key, value in found.items()})
model = model_of()
model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
for name, more in {"steps": {"steps": 2}, "all": {}}.items():
    loss, accuracy = model.evaluate(x, y, batch_size=7, verbose=0, **more)
    print(f"evaluate {name} loss = {loss:.9g} accuracy = {accuracy:.9g}")
    found = model.predict(x, batch_size=7, verbose=0, **more)
    print(f"predict {name} rows = {len(found)} sum = {np.abs(found).sum():.9g}")
    found = model.predict(dataset, verbose=0, **more)
    print(f"predict {name} of a dataset rows = {len(found)} sum = {np.abs(found).sum():.9g}")
