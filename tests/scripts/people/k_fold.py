# after: "Deep Learning with Python": k-fold validation of the Boston housing regression
# expects: equal
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold
from tensorflow import keras
from tensorflow.keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
train_data, train_targets = load_diabetes(return_X_y=True)
train_data, train_targets = train_data[:240], train_targets[:240] / 100
mean = train_data.mean(axis=0)
train_data -= mean
std = train_data.std(axis=0)
train_data /= std


def build_model():
    model = keras.Sequential(
        [layers.Input((10,)), layers.Dense(16, activation="relu"), layers.Dense(1)])
    model.compile(optimizer="rmsprop", loss="mse", metrics=["mae"])
    return model


k = 3
num_epochs = 2
all_scores, all_mae_histories = [], []
out_of_fold = np.zeros(len(train_data))
for i, (train, val) in enumerate(KFold(k, shuffle=True, random_state=1).split(train_data)):
    print(f"Processing fold #{i}")
    keras.backend.clear_session()
    keras.utils.set_random_seed(i)
    with strategy.scope():
        model = build_model()
    history = model.fit(
        train_data[train], train_targets[train], epochs=num_epochs, batch_size=16, verbose=0,
        validation_data=(train_data[val], train_targets[val]))
    all_mae_histories.append(history.history["val_mae"])
    val_mse, val_mae = model.evaluate(train_data[val], train_targets[val], verbose=0)
    all_scores.append(val_mae)
    out_of_fold[val] = model.predict(train_data[val], verbose=0)[:, 0]

for i, score in enumerate(all_scores):
    print(f"fold {i} mae = {score}")
print("mean =", np.mean(all_scores))
average_mae_history = [np.mean([x[i] for x in all_mae_histories]) for i in range(num_epochs)]
print("best epoch =", int(np.argmin(average_mae_history)))
print("out of fold =", float(np.abs(out_of_fold - train_targets).mean()))
