#!/bin/sh
# Speech with nothing but curl and ffplay: examples/curl_ffplay.sh "Good morning."
# PLAYER can be anything that plays MP3 from its standard input; GATEWAY and KEY say where to, VOICE who speaks.
set -eu
gateway=${GATEWAY:-http://127.0.0.1:8000}
player=${PLAYER:-ffplay -autoexit -nodisp -loglevel error -}

# JSON wants quotes and backslashes escaped, and no line breaks.
text=$(printf '%s' "${1:?what is to be said?}" | tr '\n' ' ' | sed 's/\\/\\\\/g; s/"/\\"/g')

curl --silent --show-error --fail-with-body --no-buffer "$gateway/v1/audio/speech" \
    -H "Authorization: Bearer ${KEY:-none}" -H "Content-Type: application/json" \
    -d "{\"model\": \"tts-1\",${VOICE:+ \"voice\": \"$VOICE\",} \"input\": \"$text\", \"response_format\": \"mp3\"}" |
    $player
