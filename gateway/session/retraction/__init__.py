"""Text that was not spoken yet is taken back, and the speech is begun anew behind what was."""
