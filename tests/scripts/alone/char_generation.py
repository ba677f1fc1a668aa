# after: Keras's example "Character-level text generation with LSTM": predict in loops, np.random
# expects: equal
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(8)
text = "the quick brown fox jumps over the lazy dog and runs away from the hunter. " * 4
chars = sorted(set(text))
char_indices = {c: i for i, c in enumerate(chars)}
maxlen, step = 10, 3
sentences = [text[i : i + maxlen] for i in range(0, len(text) - maxlen, step)]
next_chars = [text[i + maxlen] for i in range(0, len(text) - maxlen, step)]
x = np.zeros((len(sentences), maxlen, len(chars)), dtype="bool")
y = np.zeros((len(sentences), len(chars)), dtype="bool")
for i, sentence in enumerate(sentences):
    for t, char in enumerate(sentence):
        x[i, t, char_indices[char]] = 1
    y[i, char_indices[next_chars[i]]] = 1
print("sequences:", len(sentences))
model = keras.Sequential(
    [keras.Input(shape=(maxlen, len(chars))), layers.LSTM(12), layers.Dense(len(chars), activation="softmax")]
)
model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.RMSprop(learning_rate=0.01))


def sample(preds, temperature=1.0):
    preds = np.asarray(preds).astype("float64")
    preds = np.exp(np.log(preds) / temperature)
    preds = preds / np.sum(preds)
    return np.argmax(np.random.multinomial(1, preds, 1))


for epoch in range(3):
    model.fit(x, y, batch_size=32, epochs=1, shuffle=False, verbose=0)
    print(f"Generating text after epoch: {epoch}")
    start_index = np.random.randint(0, len(text) - maxlen - 1)
    for diversity in [0.2, 1.0]:
        sentence, generated = text[start_index : start_index + maxlen], ""
        for i in range(4):
            x_pred = np.zeros((1, maxlen, len(chars)))
            for t, char in enumerate(sentence):
                x_pred[0, t, char_indices[char]] = 1.0
            preds = model.predict(x_pred, verbose=0)[0]
            next_char = chars[sample(preds, diversity)]
            sentence = sentence[1:] + next_char
            generated += next_char
        print(f"sum of codes = {sum(map(ord, generated))}")
print(f"loss = {model.evaluate(x, y, verbose=0):.8f}")
