"""Every attribute of Keras and TensorFlow that tfrun replaces."""
