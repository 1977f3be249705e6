"""How the demo voice was made: text, speech, codec and talker, one step a module. Run as `python -m train.STEP`."""
