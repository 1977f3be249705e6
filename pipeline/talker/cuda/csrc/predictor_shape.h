// Sizes, argument and shared memory of the code predictor in one kernel.

#pragma once
#include "draw.h"

constexpr int CLUSTERS = KV, DIM = 128;
constexpr int SHARING = HEADS / KV;           // queries of a key
constexpr int SLICE = HIDDEN / RANKS;          // of the inner width: what one unit of weights covers
constexpr int UNIT_COLUMNS = WARPS * 8;        // and so many columns; or of all the width, and 8 columns
constexpr int UNIT = UNIT_COLUMNS * SLICE;
constexpr int STEPS = SLICE / 16;              // matrix instructions deep
constexpr int QKV_N = (SHARING + 2) * DIM / UNIT_COLUMNS, NARROW_N = HIDDEN / CLUSTERS / UNIT_COLUMNS;
constexpr int GATE_N = 2 * INNER / CLUSTERS / UNIT_COLUMNS, HEAD_N = VOCAB / CLUSTERS / UNIT_COLUMNS;
constexpr int OUT_PARTS = HEADS * DIM / RANKS / SLICE, DOWN_PARTS = INNER / RANKS / SLICE;
constexpr int OUT_UNITS = NARROW_N * OUT_PARTS, DOWN_UNITS = NARROW_N * DOWN_PARTS;
constexpr int LAYER_UNITS = QKV_N + OUT_UNITS + GATE_N + DOWN_UNITS;
// Float4s of a row pair, by which parts of products travel.
constexpr int SLOTS_A_UNIT = WARPS * 4;
constexpr int QKV_SLOTS = QKV_N * SLOTS_A_UNIT;
constexpr int NARROW_SLOTS = NARROW_N * SLOTS_A_UNIT, NARROW_WARPS = NARROW_SLOTS / 32;
constexpr int SUMS = CLUSTERS * NARROW_WARPS; // parts of a row's squares
constexpr int WIDEST = QKV_N > GATE_N ? QKV_N : GATE_N;
// Words of two bfloat16 in the order of matrix instructions: [depth / 16][lane][4].
constexpr int X_WORDS = HIDDEN / 16 * 128, MIXED_WORDS = HEADS * DIM / 16 * 128, INNER_WORDS = INNER / 16 * 128;
constexpr int X_SLICE = X_WORDS / WARPS;
static_assert(RANKS == 8 && WARPS == RANKS && BLOCKS == CLUSTERS * RANKS, "a rank has two rows of a matrix instruction");
static_assert(WARPS == 8 && SLICE % 32 == 0 && NARROW_SLOTS <= THREADS && SUMS <= 32);
static_assert(GATE_N % 4 == 0 && QKV_N <= WARPS && HEAD_N <= WARPS && GATE_N / 2 <= WARPS && SHARING == 2);
static_assert(X_SLICE * 4 <= WIDEST * 32 * 16);
static_assert(OUT_PARTS * SLICE * RANKS == HEADS * DIM && DOWN_PARTS * SLICE * RANKS == INNER);
static_assert(GROUPS <= 16 && PER_THREAD % 2 == 0 && 16 <= BLOCKS);

struct Params {
    // Weights by units, as `packed` makes them, in the order in which a block takes them.
    const u16 *layers;              // [BLOCKS, LAYERS, LAYER_UNITS, UNIT]
    const u16 *heads;               // [BLOCKS, GROUPS - 1, HEAD_N, UNIT]
    const u16 *turn, *cross;        // [LAYERS, GROUPS, HEADS + KV, DIM]
    const u16 *inputs[GROUPS - 1];  // [ids, HIDDEN] each
    const float *squares[GROUPS - 1]; // of each row of `inputs`, [ids]
    const u16 *start;               // [rows, HIDDEN]
    const float *start_squares;     // [rows]
    const i64 *first;               // [rows]
    i64 *codes;                     // [rows, GROUPS - 1]
    const float *noise;             // [rows, GROUPS - 1]
    const float *inverse_temperature, *top_p; // [rows]
    const i64 *limit;               // [rows]
    u16 *cache;                     // [LAYERS, BLOCKS, row, key or value, 16, DIM]
    // Packets; zero at first.
    u64 *x;                         // [2, X_WORDS], behind attention and behind the MLP
    u64 *mixed, *inner;             // [words]
    u64 *sums;                      // [2, RANKS, SUMS, 2], squares of x
    u64 *logits;                    // [16, VOCAB]
    u64 *drawn;                     // [16]
    u32 *epoch;                     // of the launch before
    i64 rows;
    double eps;
};

struct Shared {
    u16 ring[RING][UNIT];
    union {
        // A warp's slice of x, then what it makes of it: by its units of columns, as a matrix instruction has it.
        float4 slices[WARPS][WIDEST * 32];
        // While a block attends, nobody needs them.
        float weighed[2][SHARING][4][DIM];
    };
    float4 narrow[RANKS][NARROW_SLOTS];
    // A block's share of what attention, or the gates, have made.
    union {
        u32 mixed[MIXED_WORDS / RANKS], inner[INNER_WORDS / RANKS];
    };
    float4 totals[QKV_SLOTS];
    float scales[16];
    float qkv[2][(SHARING + 2) * DIM];
    float most[2][SHARING][4], mass[2][SHARING][4];
    DrawShared draw;
    Arrival full[RING], empty[RING], totals_there, narrow_there;
};

static_assert(sizeof(Shared) <= SHARED);
