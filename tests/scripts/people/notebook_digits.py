# after: a Kaggle notebook, turned into a script by nbconvert
# expects: equal

#!/usr/bin/env python
# coding: utf-8

# # Digits with a neural network

# In[1]:


import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import train_test_split
from tensorflow.keras.layers import *
from tensorflow.keras.models import *

tf.random.set_seed(0)
np.random.seed(0)
tf.keras.utils.set_random_seed(0)

# In[2]:


strategy = tf.distribute.MultiWorkerMirroredStrategy()

# In[3]:


data = load_digits()
X, Y = data.images[:, :, :, None] / 16.0, tf.keras.utils.to_categorical(data.target)
X_tr, X_te, Y_tr, Y_te = train_test_split(X, Y, test_size=0.25, random_state=42)
X_tr, Y_tr = X_tr[:700], Y_tr[:700]
X_tr.shape, X_te.shape

# In[4]:


with strategy.scope():
    model = Sequential()
    model.add(Input((8, 8, 1)))
    model.add(Conv2D(8, (3, 3), activation="relu"))
    model.add(MaxPool2D())
    model.add(Flatten())
    model.add(Dense(32, activation="relu"))
    model.add(Dense(10, activation="softmax"))
    model.compile(optimizer="adam", loss="categorical_crossentropy", metrics=["accuracy"])

# In[5]:


reduce_lr = tf.keras.callbacks.ReduceLROnPlateau(
    monitor="val_accuracy", patience=1, verbose=0, factor=0.5, min_lr=0.00001)
hist = model.fit(X_tr, Y_tr, batch_size=70, epochs=3, validation_data=(X_te, Y_te),
                 callbacks=[reduce_lr], verbose=2)

# In[6]:


# plt.plot(hist.history["loss"]); plt.plot(hist.history["val_loss"]); plt.show()
hist.history.keys()

# In[7]:


pred = model.predict(X_te)
cm = confusion_matrix(Y_te.argmax(1), pred.argmax(1))
print(cm)
print("right = %d" % np.trace(cm))
print("val_loss = %.17g" % hist.history["val_loss"][-1])
errors = np.flatnonzero(pred.argmax(1) != Y_te.argmax(1))
print("errors = %d" % len(errors))
print("confidence = %.17g" % pred.max(1).mean())

# In[8]:


from tensorflow.keras import backend as K

intermediate = Model(model.inputs, model.layers[-2].output)
features = intermediate.predict(X_te[:50], verbose=0)
print("features = %.17g" % features.sum())
del model
K.clear_session()
