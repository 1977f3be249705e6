"""The codec service: many streams decoded in shared batches, in a process of its own."""
