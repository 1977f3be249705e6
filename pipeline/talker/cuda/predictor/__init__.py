"""The code predictor on a GPU: a chain of kernels, or for few rows one persistent kernel."""
