# after: TensorFlow's tutorials "Basic regression" and "Load CSV data": models without an Input
# expects: equal
import keras
import numpy as np

keras.utils.set_random_seed(12)
rng = np.random.default_rng(12)
x = rng.normal(size=(100, 5)).astype("float32")
y = x.sum(axis=1, keepdims=True)

normalizer = keras.layers.Normalization(axis=-1)
normalizer.adapt(x)
models = {
    "dense": keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]),
    "normalized": keras.Sequential([normalizer, keras.layers.Dense(1)]),
}


def sizes(*shapes):
    return " ".join(f"{size or 0}" for shape in shapes for size in shape)


for name, model in models.items():
    model.compile("adam", "mse")
    model.fit(x, y, epochs=2, validation_split=0.2, shuffle=False, verbose=0)
    print(name, "is of =", sizes(model.input_shape, model.output_shape))
    print(name, "loss =", model.evaluate(x[:30], y[:30], verbose=0))
    model.save(f"{name}.keras")
    loaded = keras.saving.load_model(f"{name}.keras")
    print(name, "loaded is of =", sizes(loaded.input_shape, *(w.shape for w in loaded.weights)))
    print(name, "predicts =", float(np.sum(loaded.predict(x[:7], verbose=0))))
