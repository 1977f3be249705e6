"""Services of agent frameworks on the native protocol. Each has an extra: `voxgate[pipecat]`, `voxgate[livekit]`."""
