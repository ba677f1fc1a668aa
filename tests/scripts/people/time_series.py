# after: TensorFlow's tutorial "Time series forecasting": WindowGenerator, timeseries_dataset_from_array
# expects: equal
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(9)

t = np.arange(420)
rng = np.random.default_rng(0)
df = np.stack([np.sin(t / 12), np.cos(t / 12), 0.1 * rng.normal(size=420)], axis=1)
df[:, 2] += df[:, 0] * df[:, 1]
train_df, val_df, test_df = df[:280], df[280:360], df[360:]
train_mean, train_std = train_df.mean(0), train_df.std(0)
train_df, val_df, test_df = ((d - train_mean) / train_std for d in (train_df, val_df, test_df))


class WindowGenerator:
    def __init__(self, input_width, label_width, shift, label_columns=None):
        self.input_width, self.label_width, self.label_columns = input_width, label_width, label_columns
        self.total_window_size = input_width + shift
        self.input_slice = slice(0, input_width)
        self.labels_slice = slice(self.total_window_size - label_width, None)

    def split_window(self, features):
        inputs = features[:, self.input_slice, :]
        labels = features[:, self.labels_slice, :]
        if self.label_columns is not None:
            labels = tf.stack([labels[:, :, i] for i in self.label_columns], axis=-1)
        inputs.set_shape([None, self.input_width, None])
        labels.set_shape([None, self.label_width, None])
        return inputs, labels

    def make_dataset(self, data):
        ds = tf.keras.utils.timeseries_dataset_from_array(
            data=np.array(data), targets=None, sequence_length=self.total_window_size,
            sequence_stride=1, shuffle=True, batch_size=32, seed=1)
        return ds.map(self.split_window)

    @property
    def train(self):
        return self.make_dataset(train_df)

    @property
    def val(self):
        return self.make_dataset(val_df)

    @property
    def test(self):
        return self.make_dataset(test_df)


MAX_EPOCHS = 3


def compile_and_fit(model, window, patience=2):
    early_stopping = tf.keras.callbacks.EarlyStopping(monitor="val_loss", patience=patience, mode="min")
    model.compile(loss=tf.keras.losses.MeanSquaredError(), optimizer=tf.keras.optimizers.Adam(),
                  metrics=[tf.keras.metrics.MeanAbsoluteError()])
    return model.fit(window.train, epochs=MAX_EPOCHS, validation_data=window.val,
                     callbacks=[early_stopping], verbose=0)


wide_window = WindowGenerator(input_width=10, label_width=10, shift=1, label_columns=[2])
conv_window = WindowGenerator(input_width=3, label_width=1, shift=1, label_columns=[2])
with strategy.scope():
    lstm_model = tf.keras.models.Sequential(
        [tf.keras.layers.LSTM(8, return_sequences=True), tf.keras.layers.Dense(units=1)])
    history = compile_and_fit(lstm_model, wide_window)
    print("lstm val_loss =", history.history["val_loss"][-1])
    conv_model = tf.keras.Sequential(
        [tf.keras.layers.Conv1D(filters=8, kernel_size=(3,), activation="relu"),
         tf.keras.layers.Dense(units=8, activation="relu"), tf.keras.layers.Dense(units=1)])
    history = compile_and_fit(conv_model, conv_window)
performance = {
    "LSTM": lstm_model.evaluate(wide_window.test, verbose=0, return_dict=True),
    "Conv": conv_model.evaluate(conv_window.test, verbose=0, return_dict=True),
}
for name, value in performance.items():
    print(f"{name:12s}: mae = {value['mean_absolute_error']:.16f}")
