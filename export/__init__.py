"""Turns a draft and a target model into quantized ONNX graphs and writes them as a bundle."""
