"""What tfrun changes in Keras and TensorFlow: each replaced attribute, put in place here."""
