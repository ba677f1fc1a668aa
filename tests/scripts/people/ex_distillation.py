# after: Keras's example "Knowledge Distillation": compute_loss over teacher and student
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(14)


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


def network(units, name):
    return keras.Sequential(
        [keras.Input(shape=(64,)), layers.Dense(units, activation="relu"), layers.Dense(10)], name=name)


X, y = load_digits(return_X_y=True)
X = X / 16.0
x_train, y_train, x_test, y_test = X[:480], y[:480], X[480:600], y[480:600]
with strategy.scope():
    teacher = network(48, "teacher")
    student = network(8, "student")
    # Clone student for later comparison
    student_scratch = keras.models.clone_model(student)
    teacher.compile(
        optimizer=keras.optimizers.Adam(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
teacher.fit(x_train, y_train, epochs=3, batch_size=48, verbose=0)
print("teacher =", teacher.evaluate(x_test, y_test, verbose=0)[0])

with strategy.scope():
    distiller = Distiller(student=student, teacher=teacher)
    distiller.compile(
        optimizer=keras.optimizers.Adam(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        distillation_loss_fn=keras.losses.KLDivergence(),
        alpha=0.1,
        temperature=10,
    )
history = distiller.fit(x_train, y_train, epochs=3, batch_size=48, verbose=0)
print("distiller loss =", history.history["loss"][-1])
print("distiller accuracy =", history.history["sparse_categorical_accuracy"][-1])
results = distiller.evaluate(x_test, y_test, verbose=0, return_dict=True)
print("distiller test accuracy =", results["sparse_categorical_accuracy"])
print("student norm =", float(sum(np.square(w).sum() for w in student.get_weights())))
