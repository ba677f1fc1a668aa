"""Outside a job of several workers nothing changes."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import tfrun
from tfrun.engine import local_mode
from tfrun.patches.apply import apply

x = np.random.RandomState(0).rand(16, 4).astype("float32")
y = x.sum(axis=1, keepdims=True)


def model_of():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_patches_are_applied_once():
    apply()
    wrapped = keras.Model.fit, keras.Model.save, keras.models.load_model
    apply()
    assert wrapped == (keras.Model.fit, keras.Model.save, keras.models.load_model)
    assert wrapped[0].__wrapped__.__name__ == "fit"
    assert "Saves a model" in keras.Model.save.__doc__


def test_chief_only_delegates_every_hook():
    seen = []

    class Log(keras.callbacks.Callback):
        def set_model(self, model):
            super().set_model(model)
            seen.append("set_model")

    def noting(name):
        return lambda self, *args, **kwargs: seen.append((name, len(args)))

    hooks = [name for name in dir(keras.callbacks.Callback) if name.startswith("on_")]
    for name in hooks:
        setattr(Log, name, noting(name))
    model = model_of()
    model.fit(x, y, epochs=2, verbose=0, callbacks=[tfrun.ChiefOnly(Log())], validation_data=(x, y))
    model.predict(x, verbose=0, callbacks=[tfrun.ChiefOnly(Log())])
    called = {entry[0] for entry in seen if isinstance(entry, tuple)}
    # Keras itself calls the old names through the new ones only.
    assert called == {name for name in hooks if name not in ("on_batch_begin", "on_batch_end")}
    assert all(
        count == 2 if "batch" in name or "epoch" in name else count == 1
        for name, count in (entry for entry in seen if isinstance(entry, tuple))
    )
    assert seen.count("set_model") == 2


def test_chief_only_may_change_the_model_of_one_worker():
    class Restart(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.25
            self.model.stop_training = True

    model = model_of()
    history = model.fit(x, y, epochs=5, verbose=0, callbacks=[tfrun.ChiefOnly(Restart())])
    assert len(history.history["loss"]) == 1
    assert float(model.optimizer.learning_rate) == 0.25
    assert not local_mode.in_local_mode()


# numpy 2 warns about TensorFlow's own `__array__` inside Keras.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_saving_is_kerass_own(tmp_path):
    apply()
    model = model_of()
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.keras", "model.weights.h5"]
    again = keras.models.load_model(tmp_path / "model.keras")
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])
