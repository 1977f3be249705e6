// Draws the codes of one group, a block a row, and starts the next pass with their embeddings.

#include "draw.h"

struct Params {
    const float *logits;              // [rows, VOCAB]
    const float *inverse_temperature; // [rows]
    const i64 *top_k;                 // [rows]
    const float *top_p;               // [rows]
    const float *noise;               // [rows, groups]
    i64 *codes;                       // [rows, groups]
    const u16 *inputs;                // [VOCAB, HIDDEN], null behind the last group
    u16 *x;                           // [rows, HIDDEN]
    float *residual;                      // [rows, HIDDEN]
    float *sum_sq;                   // [rows, parts], summed over parts: squares of a row of `residual`
    i64 group, groups, parts;
};

KERNEL(draw_codes, THREADS) {
    DrawShared &shared = *(DrawShared *)shared_memory();
    Draw draw(shared);
    pdl_launch();
    // Read before the wait: options and noise are written by an operation of PyTorch before the first kernel of the
    // pass, and that kernel starts only when such an operation has ended. If a kernel with an early launch ever wrote
    // them, these reads would have to follow the wait.
    const int row = block_index();
    const size_t at = (size_t)row * p.groups + p.group;
    const float inv_temperature = p.inverse_temperature[row], top_p = p.top_p[row], uniform = p.noise[at];
    const i64 top_k = p.top_k[row];
    pdl_wait();
    float logits[PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i)
        logits[i] = load_float(p.logits + (size_t)row * VOCAB + i * THREADS + draw.thread);
    const int code = draw.sample(logits, inv_temperature, top_k, top_p, uniform);
    if (draw.thread == 0) p.codes[at] = code;
    if (p.inputs == nullptr) return;
    float square = 0.0f;
    for (int channel = draw.thread * 2; channel < HIDDEN; channel += 2 * THREADS) {
        const u32 pair = *(const u32 *)(p.inputs + (size_t)code * HIDDEN + channel);
        const float low = bf16_to_float(pair & 0xffffu), high = float_of(pair & 0xffff0000u);
        *(u32 *)(p.x + (size_t)row * HIDDEN + channel) = pair;
        p.residual[(size_t)row * HIDDEN + channel] = low;
        p.residual[(size_t)row * HIDDEN + channel + 1] = high;
        square += low * low + high * high;
    }
    square = draw.block_sum(square);
    for (int part = draw.thread; part < p.parts; part += THREADS)
        p.sum_sq[row * p.parts + part] = part == 0 ? square : 0.0f;
}
