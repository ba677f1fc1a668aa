"""TensorFlow: the strategies, and the repairs that make Keras 3 right on many replicas."""
