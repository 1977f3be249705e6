"""Text that was not spoken yet is taken back, and the speech begins again behind what was."""
