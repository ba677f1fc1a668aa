# after: Keras's example "Image Captioning": several updates in a train_step, masked losses
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers
keras.utils.set_random_seed(2)
rng = np.random.default_rng(2)
N, CAP, LEN, V = 22, 3, 5, 11
images = rng.random((N, 6, 6, 3)); seqs = rng.integers(1, V, (N, CAP, LEN)); seqs[:, :, 3:] *= rng.integers(0, 2, (N, CAP, 2))
def make(a, b):
    return tf.data.Dataset.from_tensor_slices((images[a:b], seqs[a:b])).batch(5).prefetch(2)
cnn = keras.Sequential([layers.Input((6, 6, 3)), layers.Conv2D(4, 3, activation="relu"), layers.Reshape((-1, 4))])
cnn.trainable = False
class PositionalEmbedding(layers.Layer):
    def __init__(self, sequence_length, vocab_size, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.token_embeddings = layers.Embedding(vocab_size, embed_dim)
        self.position_embeddings = layers.Embedding(sequence_length, embed_dim)
        self.embed_scale = tf.math.sqrt(tf.cast(embed_dim, tf.float64))
    def call(self, inputs):
        positions = tf.range(start=0, limit=tf.shape(inputs)[-1], delta=1)
        return self.token_embeddings(inputs) * self.embed_scale + self.position_embeddings(positions)
    def compute_mask(self, inputs, mask=None):
        return tf.math.not_equal(inputs, 0)
class Decoder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = PositionalEmbedding(LEN, V, 4)
        self.a1, self.a2 = layers.MultiHeadAttention(2, 2), layers.MultiHeadAttention(2, 2)
        self.out = layers.Dense(V, activation="softmax")
        self.supports_masking = True
    def call(self, inputs, encoder_outputs, training, mask=None):
        x = self.embedding(inputs)
        x = x + self.a1(query=x, value=x, key=x, use_causal_mask=True)
        x = x + self.a2(query=x, value=encoder_outputs, key=encoder_outputs)
        return self.out(x)
class ImageCaptioningModel(keras.Model):
    def __init__(self, cnn_model, encoder, decoder, num_captions_per_image=CAP):
        super().__init__()
        self.cnn_model, self.encoder, self.decoder = cnn_model, encoder, decoder
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.acc_tracker = keras.metrics.Mean(name="accuracy")
        self.num_captions_per_image = num_captions_per_image
    def calculate_loss(self, y_true, y_pred, mask):
        loss = self.loss(y_true, y_pred)
        mask = tf.cast(mask, dtype=loss.dtype)
        loss *= mask
        return tf.reduce_sum(loss) / tf.reduce_sum(mask)
    def calculate_accuracy(self, y_true, y_pred, mask):
        accuracy = tf.equal(y_true, tf.argmax(y_pred, axis=2))
        accuracy = tf.math.logical_and(mask, accuracy)
        accuracy = tf.cast(accuracy, dtype=tf.float64)
        mask = tf.cast(mask, dtype=tf.float64)
        return tf.reduce_sum(accuracy) / tf.reduce_sum(mask)
    def _compute(self, img_embed, batch_seq, training=True):
        encoder_out = self.encoder(img_embed, training=training)
        batch_seq_inp, batch_seq_true = batch_seq[:, :-1], batch_seq[:, 1:]
        mask = tf.math.not_equal(batch_seq_true, 0)
        pred = self.decoder(batch_seq_inp, encoder_out, training=training, mask=mask)
        return self.calculate_loss(batch_seq_true, pred, mask), self.calculate_accuracy(batch_seq_true, pred, mask)
    def train_step(self, batch_data):
        batch_img, batch_seq = batch_data
        batch_loss = 0
        batch_acc = 0
        img_embed = self.cnn_model(batch_img)
        for i in range(self.num_captions_per_image):
            with tf.GradientTape() as tape:
                loss, acc = self._compute(img_embed, batch_seq[:, i, :], training=True)
                batch_loss += loss
                batch_acc += acc
            train_vars = self.encoder.trainable_variables + self.decoder.trainable_variables
            grads = tape.gradient(loss, train_vars)
            self.optimizer.apply_gradients(zip(grads, train_vars))
        batch_acc /= float(self.num_captions_per_image)
        self.loss_tracker.update_state(batch_loss)
        self.acc_tracker.update_state(batch_acc)
        return {"loss": self.loss_tracker.result(), "acc": self.acc_tracker.result()}
    def test_step(self, batch_data):
        batch_img, batch_seq = batch_data
        batch_loss, batch_acc = 0, 0
        img_embed = self.cnn_model(batch_img)
        for i in range(self.num_captions_per_image):
            loss, acc = self._compute(img_embed, batch_seq[:, i, :], training=False)
            batch_loss += loss
            batch_acc += acc
        batch_acc /= float(self.num_captions_per_image)
        self.loss_tracker.update_state(batch_loss)
        self.acc_tracker.update_state(batch_acc)
        return {"loss": self.loss_tracker.result(), "acc": self.acc_tracker.result()}
    @property
    def metrics(self):
        return [self.loss_tracker, self.acc_tracker]
class LRSchedule(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, post_warmup_learning_rate, warmup_steps):
        super().__init__()
        self.post, self.warmup_steps = post_warmup_learning_rate, warmup_steps
    def __call__(self, step):
        global_step = tf.cast(step, tf.float64)
        warmup_steps = tf.cast(self.warmup_steps, tf.float64)
        p = global_step / warmup_steps
        return tf.cond(global_step < warmup_steps, lambda: self.post * p, lambda: tf.cast(self.post, tf.float64))
encoder = keras.Sequential([layers.Dense(4, activation="relu"), layers.LayerNormalization()])
m = ImageCaptioningModel(cnn, encoder, Decoder())
m.compile(optimizer=keras.optimizers.Adam(LRSchedule(0.02, 3)), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=False, reduction=None))
h = m.fit(make(0, 17), epochs=3, validation_data=make(17, 22), callbacks=[keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True)], verbose=0)
for k, v in h.history.items():
    print(k, "=", v[-1])
img = m.encoder(m.cnn_model(images[:1]), training=False)
toks = np.zeros((1, LEN - 1), "int64"); toks[0, 0] = 1
for i in range(LEN - 2):
    toks[0, i + 1] = np.argmax(m.decoder(toks, img, training=False, mask=toks != 0)[0, i, :])
print("drawn =", int(toks.sum()), " w =", sum(float(np.abs(w).sum()) for w in m.get_weights()))
