# after: Keras's example "Knowledge Distillation": compute_loss, student cloned, models in a dictionary
# expects: equal
import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(15)
rng = np.random.default_rng(15)
y = np.arange(100) % 5
x = rng.random((100, 8, 8, 1)).astype("float32")
for i, label in enumerate(y):
    x[i, label : label + 3] += 0.5
x_train, y_train, x_test, y_test = x[:80], y[:80], x[80:], y[80:]


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha
        self.temperature = temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1),
            ops.softmax(y_pred / self.temperature, axis=1),
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


def make(name, filters):
    return keras.Sequential([
        keras.Input(shape=(8, 8, 1)),
        layers.Conv2D(filters, (3, 3), strides=(2, 2), padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.MaxPooling2D(pool_size=(2, 2), strides=(1, 1), padding="same"),
        layers.Flatten(),
        layers.Dense(5),
    ], name=name)


models = {"teacher": make("teacher", 12), "student": make("student", 4)}
student_scratch = keras.models.clone_model(models["student"])
settings = dict(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy()])
models["teacher"].compile(optimizer=keras.optimizers.Adam(), **settings)
models["teacher"].fit(x_train, y_train, epochs=3, batch_size=16, verbose=0, shuffle=False)
print("teacher =", models["teacher"].evaluate(x_test, y_test, verbose=0)[0])
distiller = Distiller(student=models["student"], teacher=models["teacher"])
distiller.compile(
    optimizer=keras.optimizers.Adam(),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
    student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    distillation_loss_fn=keras.losses.KLDivergence(), alpha=0.1, temperature=10)
history = distiller.fit(x_train, y_train, epochs=2, batch_size=16, verbose=0, shuffle=False)
print("distiller loss =", history.history["loss"][-1])
print("distiller accuracy =", distiller.evaluate(x_test, y_test, verbose=0)[1])
student_scratch.compile(optimizer=keras.optimizers.Adam(), **settings)
student_scratch.fit(x_train, y_train, epochs=2, batch_size=16, verbose=0, shuffle=False)
print("scratch =", student_scratch.evaluate(x_test, y_test, verbose=0)[0])
weights = models["student"].get_weights()
print("student =", float(sum(np.abs(w).sum() for w in weights)))
