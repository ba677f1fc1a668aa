# after: Keras's examples "Grad-CAM class activation visualization", "Integrated gradients", filters
# expects: equal
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(11)
rng = np.random.default_rng(2)
images, labels = rng.random((64, 14, 14, 1)), rng.integers(0, 3, 64)
for i, label in enumerate(labels):
    images[i, 4 * label : 4 * label + 4] += 1

inputs = keras.Input((14, 14, 1))
x = keras.layers.Conv2D(6, 3, activation="relu")(inputs)
x = keras.layers.Conv2D(6, 3, activation="relu", name="last_conv")(x)
x = keras.layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, keras.layers.Dense(3, name="predictions")(x))
model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(True))
fitted = model.fit(images, labels, epochs=3, batch_size=16, shuffle=False, verbose=0)
print("loss =", fitted.history["loss"][-1])


def make_gradcam_heatmap(img_array, model, last_conv_layer_name, pred_index=None):
    grad_model = keras.models.Model(
        model.inputs, [model.get_layer(last_conv_layer_name).output, model.output])
    with tf.GradientTape() as tape:
        last_conv_layer_output, preds = grad_model(img_array)
        if pred_index is None:
            pred_index = tf.argmax(preds[0])
        class_channel = preds[:, pred_index]
    grads = tape.gradient(class_channel, last_conv_layer_output)
    pooled_grads = tf.reduce_mean(grads, axis=(0, 1, 2))
    heatmap = tf.squeeze(last_conv_layer_output[0] @ pooled_grads[..., tf.newaxis])
    return (tf.maximum(heatmap, 0) / tf.math.reduce_max(heatmap)).numpy()


for i in range(3):
    heatmap = make_gradcam_heatmap(images[i : i + 1], model, "last_conv", i)
    print("heat =", float(heatmap.sum()))


def get_gradients(img_input, top_pred_idx):
    image = tf.cast(img_input, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(image)
        top_class = model(image)[:, top_pred_idx]
    return tape.gradient(top_class, image)


img, baseline = images[:1].astype("float32"), np.zeros((1, 14, 14, 1), "float32")
steps = [baseline + (k / 5) * (img - baseline) for k in range(6)]
grads = tf.convert_to_tensor([get_gradients(step, 0) for step in steps])
integrated = (img - baseline) * tf.reduce_mean((grads[:-1] + grads[1:]) / 2, axis=0)
print("integrated =", round(float(tf.reduce_sum(tf.abs(integrated))), 4))

feature_extractor = keras.Model(model.inputs, model.get_layer("last_conv").output)


@tf.function
def gradient_ascent_step(img, filter_index, learning_rate):
    with tf.GradientTape() as tape:
        tape.watch(img)
        loss = tf.reduce_mean(feature_extractor(img)[:, 2:-2, 2:-2, filter_index])
    img += learning_rate * tf.math.l2_normalize(tape.gradient(loss, img))
    return loss, img


picture = tf.constant(rng.random((1, 14, 14, 1)))
for _ in range(5):
    loss, picture = gradient_ascent_step(picture, 1, 1.0)
print("filter =", float(loss))
