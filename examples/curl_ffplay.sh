#!/bin/sh
# Speaks a text with curl and ffplay: examples/curl_ffplay.sh "Good morning."
# PLAYER is a command that plays MP3 from standard input; GATEWAY, KEY and VOICE choose gateway, API key and voice.
set -eu
gateway=${GATEWAY:-http://127.0.0.1:8000}
player=${PLAYER:-ffplay -autoexit -nodisp -loglevel error -}

# In JSON, quotes and backslashes are escaped, and line breaks and tabs are not allowed.
text=$(printf '%s' "${1:?the text to speak is missing}" | tr '[:cntrl:]' ' ' | sed 's/\\/\\\\/g; s/"/\\"/g')

curl --silent --show-error --fail-with-body --no-buffer "$gateway/v1/audio/speech" \
    -H "Authorization: Bearer ${KEY:-none}" -H "Content-Type: application/json" \
    -d "{\"model\": \"tts-1\",${VOICE:+ \"voice\": \"$VOICE\",} \"input\": \"$text\", \"response_format\": \"mp3\"}" |
    $player
