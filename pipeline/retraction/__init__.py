"""Where speech is cut when text that was not spoken yet is taken back."""
