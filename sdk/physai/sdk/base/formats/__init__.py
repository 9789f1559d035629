"""File formats read within bounds: JSON, YAML, protobuf, and the metadata of ONNX files."""
