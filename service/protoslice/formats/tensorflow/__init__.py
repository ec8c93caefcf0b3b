"""TensorFlow's protos, tensor bundles and record files."""
