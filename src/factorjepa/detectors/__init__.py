"""Object detectors in ONNX files, for the teacher (agents) and for privacy (faces and registration plates)."""
