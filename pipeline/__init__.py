"""The pipeline: text in, speech out; tokenizer, talker and codec of one voice."""
