# after: TensorFlow's tutorial "Text generation with an RNN": subclassed model with state, one-step model
# expects: equal
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.keras.utils.set_random_seed(11)

text = ("First Citizen: Before we proceed any further, hear me speak. All: Speak, speak. "
        "First Citizen: You are all resolved rather to die than to famish? All: Resolved. ") * 8
vocab = sorted(set(text))
ids_from_chars = tf.keras.layers.StringLookup(vocabulary=list(vocab), mask_token=None)
chars_from_ids = tf.keras.layers.StringLookup(
    vocabulary=ids_from_chars.get_vocabulary(), invert=True, mask_token=None)
all_ids = ids_from_chars(tf.strings.unicode_split(text, "UTF-8"))
seq_length = 10
sequences = tf.data.Dataset.from_tensor_slices(all_ids).batch(seq_length + 1, drop_remainder=True)


def split_input_target(sequence):
    input_text = sequence[:-1]
    target_text = sequence[1:]
    return input_text, target_text


dataset = (
    sequences.map(split_input_target)
    .shuffle(1000, seed=2)
    .batch(24, drop_remainder=True)
    .prefetch(tf.data.experimental.AUTOTUNE)
)


class MyModel(tf.keras.Model):
    def __init__(self, vocab_size, embedding_dim, rnn_units):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(vocab_size, embedding_dim)
        self.gru = tf.keras.layers.GRU(rnn_units, return_sequences=True, return_state=True)
        self.dense = tf.keras.layers.Dense(vocab_size)

    def call(self, inputs, states=None, return_state=False, training=False):
        x = self.embedding(inputs, training=training)
        if states is None:
            states = self.gru.get_initial_state(tf.shape(x)[0])
        x, states = self.gru(x, initial_state=states, training=training)
        x = self.dense(x, training=training)
        if return_state:
            return x, states
        return x


vocab_size = len(ids_from_chars.get_vocabulary())
with strategy.scope():
    model = MyModel(vocab_size=vocab_size, embedding_dim=12, rnn_units=24)
    loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
history = model.fit(dataset, epochs=3, verbose=0,
                    callbacks=[tf.keras.callbacks.ModelCheckpoint("ckpt_{epoch}.weights.h5", save_weights_only=True)])
print("loss =", history.history["loss"][-1])
for input_example_batch, target_example_batch in dataset.take(1):
    example_batch_predictions = model(input_example_batch)
    print("exp of loss =", tf.exp(loss(target_example_batch, example_batch_predictions)).numpy())

states, next_char, result = None, tf.constant(["F"]), []
for n in range(12):
    input_ids = ids_from_chars(tf.strings.unicode_split(next_char, "UTF-8")).to_tensor()
    predicted_logits, states = model(inputs=input_ids, states=states, return_state=True)
    predicted_ids = tf.argmax(predicted_logits[:, -1, :], axis=-1)
    next_char = chars_from_ids(predicted_ids)
    result.append(int(predicted_ids[0]))
print("generated =", sum(result))
