"""ONNX models as other files: with external data, in a single file, or a part of their graph."""
