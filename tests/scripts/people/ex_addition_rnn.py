# after: Keras's example "Sequence to sequence learning for performing number addition"
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(4)
np.random.seed(4)

# Parameters for the model and dataset.
TRAINING_SIZE = 300
DIGITS = 2
REVERSE = True
MAXLEN = DIGITS + 1 + DIGITS


class CharacterTable:
    """Given a set of characters: encode them to a one-hot integer representation, and back."""

    def __init__(self, chars):
        self.chars = sorted(set(chars))
        self.char_indices = {c: i for i, c in enumerate(self.chars)}
        self.indices_char = {i: c for i, c in enumerate(self.chars)}

    def encode(self, C, num_rows):
        x = np.zeros((num_rows, len(self.chars)))
        for i, c in enumerate(C):
            x[i, self.char_indices[c]] = 1
        return x

    def decode(self, x, calc_argmax=True):
        if calc_argmax:
            x = x.argmax(axis=-1)
        return "".join(self.indices_char[i] for i in x)


chars = "0123456789+ "
ctable = CharacterTable(chars)
questions, expected, seen = [], [], set()
while len(questions) < TRAINING_SIZE:
    a, b = np.random.randint(100), np.random.randint(100)
    q = "{}+{}".format(a, b).ljust(MAXLEN)
    ans = str(a + b).ljust(DIGITS + 1)
    questions.append(q[::-1] if REVERSE else q)
    expected.append(ans)
print("Total questions: %d" % len(questions))

x = np.zeros((len(questions), MAXLEN, len(chars)), dtype=bool)
y = np.zeros((len(questions), DIGITS + 1, len(chars)), dtype=bool)
for i, sentence in enumerate(questions):
    x[i] = ctable.encode(sentence, MAXLEN)
for i, sentence in enumerate(expected):
    y[i] = ctable.encode(sentence, DIGITS + 1)
indices = np.arange(len(y))
np.random.shuffle(indices)
x, y = x[indices], y[indices]
split_at = len(x) - len(x) // 10
(x_train, x_val), (y_train, y_val) = (x[:split_at], x[split_at:]), (y[:split_at], y[split_at:])

with strategy.scope():
    model = keras.Sequential()
    model.add(layers.Input((MAXLEN, len(chars))))
    model.add(layers.LSTM(16))
    model.add(layers.RepeatVector(DIGITS + 1))
    model.add(layers.LSTM(16, return_sequences=True))
    model.add(layers.Dense(len(chars), activation="softmax"))
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])

for epoch in range(1, 4):
    print("Iteration", epoch)
    model.fit(x_train, y_train, batch_size=32, epochs=1, validation_data=(x_val, y_val), verbose=0)
    correct = 0
    for i in range(3):
        rowx, rowy = x_val[np.array([i])], y_val[np.array([i])]
        preds = np.argmax(model.predict(rowx, verbose=0), axis=-1)
        guess = ctable.decode(preds[0], calc_argmax=False)
        print("Q", ctable.decode(rowx[0])[::-1], "T", ctable.decode(rowy[0]), "guess", guess)
    print("val loss =", model.evaluate(x_val, y_val, verbose=0)[0])
