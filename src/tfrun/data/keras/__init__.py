"""What Keras and tf.distribute take in place of a tf.data pipeline."""
