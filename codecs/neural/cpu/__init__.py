"""The codec's layers on a CPU as functions compiled by numba."""
