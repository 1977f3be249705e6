"""The speech of one utterance: its text is split over generations, whose frames become one stream of audio."""
