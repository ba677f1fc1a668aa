# after: Keras's example "Collaborative Filtering for Movie Recommendations"
# expects: equal
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(30)
rng = np.random.RandomState(42)
num_users, num_movies, EMBEDDING_SIZE = 40, 60, 8
users, movies = rng.randint(num_users, size=900), rng.randint(num_movies, size=900)
taste, kind = rng.normal(size=(num_users, 3)), rng.normal(size=(num_movies, 3))
ratings = np.clip(3 + (taste[users] * kind[movies]).sum(1), 0.5, 5.0)
min_rating, max_rating = ratings.min(), ratings.max()

x = np.stack([users, movies], axis=1)
# Normalize the targets between 0 and 1. Makes it easy to train.
y = (ratings - min_rating) / (max_rating - min_rating)
train_indices = int(0.9 * len(x))
x_train, x_val, y_train, y_val = x[:train_indices], x[train_indices:], y[:train_indices], y[train_indices:]


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size, **kwargs):
        super().__init__(**kwargs)
        self.user_embedding = layers.Embedding(
            num_users, embedding_size, embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6))
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(
            num_movies, embedding_size, embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6))
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user_vector = self.user_embedding(inputs[:, 0])
        user_bias = self.user_bias(inputs[:, 0])
        movie_vector = self.movie_embedding(inputs[:, 1])
        movie_bias = self.movie_bias(inputs[:, 1])
        dot_user_movie = ops.sum(user_vector * movie_vector, axis=1, keepdims=True)
        # Add all the components (including bias)
        x = dot_user_movie + user_bias + movie_bias
        # The sigmoid activation forces the rating to between 0 and 1
        return ops.nn.sigmoid(x)


with strategy.scope():
    model = RecommenderNet(num_users, num_movies, EMBEDDING_SIZE)
    model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(0.001))
history = model.fit(
    x=x_train, y=y_train, batch_size=64, epochs=2, verbose=0, validation_data=(x_val, y_val))
print("loss =", history.history["loss"][-1])
print("val_loss =", history.history["val_loss"][-1])

# Show top movie recommendations to a user
user_id = 7
movies_not_watched = np.setdiff1d(np.arange(num_movies), movies[users == user_id])
user_movie_array = np.hstack(
    ([[user_id]] * len(movies_not_watched), movies_not_watched[:, None]))
scores = model.predict(user_movie_array, verbose=0).flatten()
top_ratings_indices = scores.argsort()[-5:][::-1]
print("top five:", movies_not_watched[top_ratings_indices])
print("best score =", scores.max())
