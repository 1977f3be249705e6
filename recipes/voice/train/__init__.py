"""Training of the demo voice: text, speech, codec and talker (../README.md). Steps run as `python -m train.STEP`."""
