"""Wire protocols: the native one, and those of ElevenLabs, Deepgram and OpenAI, over WebSockets and plain HTTP."""
