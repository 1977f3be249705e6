#!/bin/bash
# Steps of a run on a machine that is held for a limited time, by commands of a few minutes each.
#
#   hold.sh bring FOLDER      keeps weights of an earlier run (collected parts), with which the steps continue; of a
#                             finished voice, too, with codes that it spoke (spoken.safetensors): its tokenizer is learnt
#                             again
#   hold.sh begin SECONDS     unpacks the kit, starts speech, tokenizer and decoder; all training ends after SECONDS
#   hold.sh teacher FOLDER    keeps a part of Kokoro's weights; starts the synthesis of its voices when all are there
#   hold.sh talker [START]    starts the talker, from START/talker.safetensors if it does not continue
#   hold.sh watch SECONDS     waits, starts again without CUDA graphs or compilation what failed, prints the logs' ends
#   hold.sh collect OUT STEPS collects weights of the steps, in files of at most 16 MB
#
# Everything is in $HOLD (/tmp/hold). $KOKORO, $CODES, $DECODER and $TALKER are further options of the steps, $CODES_S the
# seconds of the tokenizer (130), $PROCESSES those that read with hibari, $DEVICE the device (cuda:0).
#
# The GPU is the decoder's for most of the time: Kokoro ends after 260 s, and the talker, which needs fewer updates, is
# best started when two fifths of the time are left.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
hold=${HOLD:-/tmp/hold}
kit=$hold/kit work=$hold/work back=$hold/back codes_s=${CODES_S:-130} device=${DEVICE:-cuda:0}
talker_options="--residual-frames 6144 --rate 8e-4 --warm-up 400 --sampled-from 0.35 --min-frames 300000
    --single-share 0.45 --dropout 0.05 ${TALKER:-}"

recover=
[ -e "$back/spoken.safetensors" ] && recover="--recover $back/spoken.safetensors $back/decoder.safetensors"

run() { # run OPTION...
    (cd "$kit" && python3 -m train.run "$work" --talker-device "$device" --codec-device "$device" $recover "$@")
}

start_kokoro() {
    run --steps kokoro --kokoro-options "--hours 9 --seconds 260 ${KOKORO:-}"
}

has_ended() { # has_ended PID
    ! kill -0 "$1" 2>/dev/null || grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null
}

restart() { # restart STEP: the first time without graphs (decoder), then without compilation, then no more
    step=$1
    cp "$work/logs/$step.log" "$work/logs/$step.failed.$(date +%s).log"
    failures=$(find "$work/logs" -name "$step.failed.*" | wc -l)
    [ "$failures" -gt 2 ] && return
    case $step-$failures in decoder-1) how=--no-graph ;; *) how=--eager ;; esac
    start=$hold/$step.safetensors
    [ -e "$work/$step.safetensors" ] && mv "$work/$step.safetensors" "$start"
    [ -e "$start" ] && how="$how --start $start"
    if [ "$step" = decoder ]; then
        how="$how --kernel-times"
        with=$hold/discriminators.safetensors
        [ -e "$work/discriminators.safetensors" ] && mv "$work/discriminators.safetensors" "$with"
        [ -e "$start" ] && [ -e "$with" ] && how="$how --start-discriminators $with --discriminators-from -1"
    fi
    until=$(cat "$hold/until")
    case $step in
    kokoro) start_kokoro ;;
    codes) run --steps codes --codes-seconds "$codes_s" --codes-options "${CODES:-}" ;;
    decoder) run --steps decoder --until "$until" --decoder-seconds 3600 --decoder-options "${DECODER:-} $how" ;;
    talker) run --steps talker --until "$until" --talker-seconds 3600 --talker-options "$how --rows 24 $talker_options" ;;
    esac
}

case ${1:-} in
bring)
    mkdir -p "$back"
    cp "$2"/*.safetensors "$back"
    ;;
begin)
    rm -rf "$kit" "$work" "$hold"/*.safetensors
    mkdir -p "$hold"
    cp -r "$here" "$kit"
    echo $(($(date +%s) + $2)) >"$hold/until"
    python3 -c 'import onnxruntime, scipy, tokenizers, torch; print(onnxruntime.__version__, torch.__version__)'
    (cd "$kit" && python3 -m train.kit --unpack . "$work")
    processes=${PROCESSES:-$(($(nproc) * 5 / 8))}
    steps=speech,codes,decoder
    if [ -e "$back/codes.0.safetensors" ]; then
        steps=speech,decoder
        cp "$back/codes.0.safetensors" "$work/codes.safetensors"
    fi
    if [ -e "$back/decoder.0.safetensors" ]; then
        DECODER="--start $back/decoder.safetensors --discriminators-from -1 ${DECODER:-}"
        [ -e "$back/discriminators.0.safetensors" ] &&
            DECODER="--start-discriminators $back/discriminators.safetensors $DECODER"
    fi
    run --steps "$steps" --processes "$processes" --codes-seconds "$codes_s" --codes-options "${CODES:-}" \
        --until "$(cat "$hold/until")" --decoder-seconds 3600 --decoder-options "--kernel-times ${DECODER:-}"
    sleep 3
    run --status
    ;;
teacher)
    mkdir -p "$hold/kokoro"
    cp "$2"/kokoro.*.safetensors "$hold/kokoro"
    parts=$(find "$hold/kokoro" -name 'kokoro.*.safetensors' | wc -l)
    echo "$parts of 3 parts"
    if [ "$parts" = 3 ] && [ -e "$work/text/train.txt" ]; then
        ln -sfn "$hold/kokoro" "$work/kokoro"
        start_kokoro
        sleep 3
        run --status
    fi
    ;;
talker)
    start=$back/talker.safetensors
    if [ ! -e "$back/talker.0.safetensors" ]; then
        start=$hold/talker.safetensors
        cp "$2/talker.safetensors" "$start"
    fi
    run --steps talker --until "$(cat "$hold/until")" --talker-seconds 3600 \
        --talker-options "--start $start --rows 32 $talker_options"
    sleep 3
    run --status
    ;;
watch)
    end=$(($(date +%s) + $2)) until=$(cat "$hold/until")
    while [ "$(date +%s)" -lt "$end" ] && [ "$(date +%s)" -lt $((until + 15)) ]; do
        sleep 5
        [ "$(date +%s)" -gt "$until" ] && continue
        for step in kokoro codes decoder talker; do
            pid=$(python3 -c "import json; print(json.load(open('$work/pids.json'))['pids'].get('$step', 0))")
            if [ "$pid" != 0 ] && has_ended "$pid" && ! grep -q ' done ' "$work/logs/$step.log"; then
                echo "$step failed:"
                tail -n 12 "$work/logs/$step.log"
                restart $step
            fi
        done
    done
    run --status
    for step in kokoro codes decoder talker; do
        echo "$step:"
        tail -n 4 "$work/logs/$step.jsonl"
    done
    df -h "$hold" | tail -n 1
    ;;
collect)
    case $3 in *code_phones*) (cd "$kit" && python3 -m train.speech.code_phones "$work" --device "$device") ;; esac
    (cd "$kit" && python3 -m train.collect "$work" "$2" --steps "$3")
    ;;
*)
    sed -n '2,17p' "$0"
    exit 2
    ;;
esac
