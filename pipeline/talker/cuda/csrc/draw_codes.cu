// The draw of one group's codes, a block a row, and the beginning of the next pass with their embeddings.

#include "draw.h"

struct Params {
    const float *logits;              // [rows, VOCAB]
    const float *inverse_temperature; // [rows]
    const i64 *limit;                 // [rows]
    const float *top_p;               // [rows]
    const float *noise;               // [rows, groups]
    i64 *codes;                       // [rows, groups]
    const u16 *inputs;                // [VOCAB, HIDDEN], none behind the last group
    u16 *x;                           // [rows, HIDDEN]
    float *kept;                      // [rows, HIDDEN]
    float *squares;                   // [rows, parts], whose sum is that of a row of `kept`
    i64 group, groups, parts;
};

KERNEL(draw_codes, THREADS) {
    DrawShared &shared = *(DrawShared *)shared_memory();
    Draw draw(shared);
    let_next_begin();
    const int row = block_index();
    const size_t at = (size_t)row * p.groups + p.group;
    const float heat = p.inverse_temperature[row], top_p = p.top_p[row], uniform = p.noise[at];
    const i64 limit = p.limit[row];
    await_last();
    float logits[PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i)
        logits[i] = load_float(p.logits + (size_t)row * VOCAB + i * THREADS + draw.thread);
    const int code = draw.of(logits, heat, limit, top_p, uniform);
    if (draw.thread == 0) p.codes[at] = code;
    if (p.inputs == nullptr) return;
    float square = 0.0f;
    for (int channel = draw.thread * 2; channel < HIDDEN; channel += 2 * THREADS) {
        const u32 pair = *(const u32 *)(p.inputs + (size_t)code * HIDDEN + channel);
        const float low = widen(pair & 0xffffu), high = float_of(pair & 0xffff0000u);
        *(u32 *)(p.x + (size_t)row * HIDDEN + channel) = pair;
        p.kept[(size_t)row * HIDDEN + channel] = low;
        p.kept[(size_t)row * HIDDEN + channel + 1] = high;
        square += low * low + high * high;
    }
    square = draw.sum_of_block(square);
    for (int part = draw.thread; part < p.parts; part += THREADS)
        p.squares[row * p.parts + part] = part == 0 ? square : 0.0f;
}
