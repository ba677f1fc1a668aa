"""TensorFlow: the strategies, and what a step consists of on many replicas."""
