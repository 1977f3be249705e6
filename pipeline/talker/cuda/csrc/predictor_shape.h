// Sizes, parameters and shared memory of the persistent code predictor.

#pragma once
#include "draw.h"

constexpr int CLUSTERS = KV, DIM = 128;
constexpr int SHARING = HEADS / KV;           // query heads of a key-value head
constexpr int SLICE = HIDDEN / RANKS;          // inner width of a unit of weights
// A unit has SLICE of the depth and UNIT_COLUMNS columns; or the whole depth and 8 columns.
constexpr int UNIT_COLUMNS = WARPS * 8;
constexpr int UNIT = UNIT_COLUMNS * SLICE;
constexpr int STEPS = SLICE / 16;              // matrix instructions over the depth of a unit
constexpr int QKV_N = (SHARING + 2) * DIM / UNIT_COLUMNS, NARROW_N = HIDDEN / CLUSTERS / UNIT_COLUMNS;
constexpr int GATE_N = 2 * INNER / CLUSTERS / UNIT_COLUMNS, HEAD_N = VOCAB / CLUSTERS / UNIT_COLUMNS;
constexpr int OUT_PARTS = HEADS * DIM / RANKS / SLICE, DOWN_PARTS = INNER / RANKS / SLICE;
constexpr int OUT_UNITS = NARROW_N * OUT_PARTS, DOWN_UNITS = NARROW_N * DOWN_PARTS;
constexpr int LAYER_UNITS = QKV_N + OUT_UNITS + GATE_N + DOWN_UNITS;
constexpr int TILES = ROWS / 16;               // of 16 rows, which a matrix instruction has
// Partial sums travel as float4: two columns of two rows, in slots of a tile. NARROW is a product as wide as the
// residual stream.
constexpr int UNIT_SLOTS = WARPS * 4;
constexpr int QKV_SLOTS = QKV_N * UNIT_SLOTS;
constexpr int NARROW_SLOTS = NARROW_N * UNIT_SLOTS, NARROW_WARPS = NARROW_SLOTS / 32;
constexpr int SUMS = CLUSTERS * NARROW_WARPS; // parts of a row's sum of squares
// With two tiles the sums of GATE do not fit at once in the memory of x.
constexpr int GATE_ROUNDS = TILES;
constexpr int WIDEST = QKV_N > GATE_N / GATE_ROUNDS ? QKV_N : GATE_N / GATE_ROUNDS;
// Words of two bfloat16 in the order of matrix instructions: [depth / 16][tile][lane][4].
constexpr int TILE_WORDS = 128, DEPTH_WORDS = TILES * TILE_WORDS;
constexpr int X_WORDS = HIDDEN / 16 * DEPTH_WORDS, ATTENDED_WORDS = HEADS * DIM / 16 * DEPTH_WORDS;
constexpr int INNER_WORDS = INNER / 16 * DEPTH_WORDS;
constexpr int X_SLICE = X_WORDS / WARPS;
static_assert(RANKS == 8 && WARPS == RANKS && BLOCKS == CLUSTERS * RANKS, "a rank has two of the 16 rows of a tile");
static_assert(WARPS == 8 && SLICE % 32 == 0 && TILES * NARROW_SLOTS <= THREADS && SUMS <= 32);
static_assert(GATE_N % 4 == 0 && QKV_N <= WARPS && HEAD_N <= WARPS && GATE_N / 2 <= WARPS && SHARING == 2);
static_assert(X_SLICE * 4 <= TILES * WIDEST * 32 * 16);
static_assert(OUT_PARTS * SLICE * RANKS == HEADS * DIM && DOWN_PARTS * SLICE * RANKS == INNER);
static_assert(GROUPS <= 16 && PER_THREAD % 2 == 0 && ROWS % 16 == 0 && ROWS <= 32);

struct Params {
    // Weights in units, as `packed` lays them out, in the order in which a block reads them.
    const u16 *layers;              // [BLOCKS, LAYERS, LAYER_UNITS, UNIT]
    const u16 *heads;               // [BLOCKS, GROUPS - 1, HEAD_N, UNIT]
    const u16 *rope_cos, *rope_sin;        // [LAYERS, GROUPS, HEADS + KV, DIM]
    const u16 *inputs[GROUPS - 1];  // [ids, HIDDEN] each
    const float *input_sum_sq[GROUPS - 1]; // of each row of `inputs`, [ids]
    const u16 *start;               // [rows, HIDDEN]
    const float *start_sum_sq;     // [rows]
    const i64 *first;               // [rows]
    i64 *codes;                     // [rows, GROUPS - 1]
    const float *noise;             // [rows, GROUPS - 1]
    const float *inverse_temperature, *top_p; // [rows]
    const i64 *top_k;               // [rows]
    u16 *cache;                     // [LAYERS, BLOCKS, 2 * TILES rows of the block, key or value, 16, DIM]
    // Buffers of packets, zero at first.
    u64 *x;                         // [2, X_WORDS], the residual stream after attention and after the MLP
    u64 *attended, *inner;             // [ATTENDED_WORDS], [INNER_WORDS]
    u64 *sum_sq;                      // [2, TILES, RANKS, SUMS, 2], of x
    u64 *logits;                    // [ROWS, VOCAB]
    u64 *sampled;                     // [ROWS]
    u32 *epoch;                     // last epoch of the previous launch
    i64 rows;
    double eps;
};

struct Shared {
    u16 ring[RING][UNIT];
    union {
        // A warp's slice of x, then its partial sums, by units of columns in the order of a matrix instruction.
        float4 slices[WARPS][WIDEST * TILES * 32];
        // Attention uses the same memory between two products.
        float partial_attended[2 * TILES][SHARING][4][DIM];
    };
    float4 narrow[RANKS][TILES * NARROW_SLOTS];
    // This block's share of the attention's output, or of the gated MLP's inner activations.
    union {
        u32 attended[ATTENDED_WORDS / RANKS], inner[INNER_WORDS / RANKS];
    };
    float4 qkv_sums[TILES][QKV_SLOTS];
    float scales[ROWS];
    float qkv[2 * TILES][(SHARING + 2) * DIM];
    float row_max[2 * TILES][SHARING][4], row_sum[2 * TILES][SHARING][4];
    DrawShared draw;
    Mbarrier full[RING], empty[RING], qkv_ready, narrow_ready;
};

static_assert(sizeof(Shared) <= SHARED);
