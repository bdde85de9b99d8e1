"""Speculative decoding on ONNX Runtime: load a bundle, stream text, read the statistics."""
