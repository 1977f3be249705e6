// A product of few rows with a matrix whose weights are under way before the rows are known.
//
// A block copies its first weights into shared memory while the kernels before it still run (programmatic dependent
// launch), and waits for their results only then. Each lane copies just the values that it multiplies itself, so the
// ring needs no barrier. A cluster of RANKS blocks computes TILES tiles of 16 lines, each block over 1/RANKS of the
// depth, a warp some of the tiles; each sum goes to the block that owns it. No block waits for one outside its cluster.
//
// A matrix instruction takes 16 lines and 8 rows. Within 32 of the depth, a lane's 8 neighbouring values stand for
// those that the instruction assigns to it: the order of a sum is irrelevant as long as lines and rows agree.

#include "device.h"

constexpr int ADD = 1, SWIGLU = 2; // of EPILOGUE, which else is STORE: as `Epilogue` in tiles.py
constexpr int SLICE = DEPTH / RANKS, GROUPS = SLICE / 32; // of the depth, for a block; of 32 of it
constexpr int TILES = LINES / 16 * RANKS / BLOCKS, WARP_TILES = TILES / WARPS;
constexpr int TILE_STEPS = GROUPS / STEP_GROUPS, STEPS = WARP_TILES * TILE_STEPS; // copies of a warp
constexpr int RING = STAGES < STEPS ? STAGES : STEPS;
// A fragment is what a matrix instruction makes, 16 lines of 8 rows: a float4 of each lane.
constexpr int FRAGMENTS = TILES * ROW_BLOCKS, OWN_FRAGMENTS = FRAGMENTS / RANKS;
constexpr int ROWS = ROW_BLOCKS * 8, WARP_ROWS = (ROWS + WARPS - 1) / WARPS;
constexpr int RESULT = EPILOGUE == SWIGLU ? LINES / 2 : LINES;
static_assert(GROUPS * 32 * RANKS == DEPTH && TILE_STEPS * STEP_GROUPS == GROUPS, "");
static_assert(WARP_TILES * WARPS * BLOCKS * 16 == LINES * RANKS && OWN_FRAGMENTS * RANKS == FRAGMENTS, "");
static_assert(SUMS % 32 == 0 && (EPILOGUE != ADD || OWN_FRAGMENTS <= WARPS), "a thread adds to one float4 at most");

// `matrix`: [LINES, DEPTH], for SWIGLU the gates first; `x`: [rows, DEPTH]; `out`: [rows, RESULT].
// STORE and SWIGLU multiply `x` with the weights of an RMS norm in the matrix: they apply its scale, from `sum_sq`,
// [rows, SUMS], parts of the sum of squares of a row of the residual stream. ADD adds to `residual`, [rows, LINES],
// `out` is the sum rounded, and `sum_sq` becomes that of each 16 channels.
struct Params {
    const u16 *matrix, *x;
    u16 *out;
    float *residual, *sum_sq;
    i64 rows;
    double eps;
};

struct Shared {
    uint4 ring[RING][WARPS][STEP_GROUPS][2][32];
    uint4 x[GROUPS][ROW_BLOCKS][32];
    float4 inbox[RANKS][OWN_FRAGMENTS][32];
    float scale[ROWS];
    Mbarrier inbox_full;
};
static_assert(sizeof(Shared) <= SHARED, "");

struct Product {
    const Params &p;
    Shared &shared;
    const int thread = thread_index(), warp = thread / 32, lane = thread % 32;
    const int quad = lane / 4, pair = lane % 4;
    const int cluster = block_index() / RANKS, rank = block_index() % RANKS;
    const u16 *line = p.matrix + rank * SLICE + pair * 8;

    // Line of the matrix of this lane in the upper or lower half of a tile of the cluster.
    DEVICE_MEMBER size_t line_of(int tile, int half) const {
        const size_t number = cluster * TILES + tile;
        return EPILOGUE == SWIGLU ? half * RESULT + number * 8 + quad : number * 16 + half * 8 + quad;
    }
    DEVICE_MEMBER void copy_step(int step) {
        if (step < STEPS)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u16 *from = line + line_of(warp * WARP_TILES + step / TILE_STEPS, half) * DEPTH
                    + step % TILE_STEPS * STEP_GROUPS * 32;
#pragma unroll
                for (int group = 0; group < STEP_GROUPS; ++group)
                    copy_words(&shared.ring[step % RING][warp][group][half][lane], from + group * 32);
            }
        commit_copies();
    }
    DEVICE_MEMBER void load_rows() {
        constexpr int WORDS = (GROUPS * ROW_BLOCKS + WARPS - 1) / WARPS;
        uint4 words[WORDS];
        float sums[WARP_ROWS];
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            const int at = i * WARPS + warp, row = at % ROW_BLOCKS * 8 + quad;
            words[i] = make_uint4(0, 0, 0, 0);
            if (row < p.rows && at < GROUPS * ROW_BLOCKS)
                words[i] = load_words(p.x + (size_t)row * DEPTH + rank * SLICE + at / ROW_BLOCKS * 32 + pair * 8);
        }
        if (EPILOGUE != ADD)
#pragma unroll
            for (int i = 0; i < WARP_ROWS; ++i) {
                const int row = i * WARPS + warp;
                sums[i] = 0.0f;
                if (row < p.rows)
#pragma unroll
                    for (int part = 0; part < SUMS; part += 32)
                        sums[i] += load_float(p.sum_sq + (size_t)row * SUMS + part + lane);
            }
#pragma unroll
        for (int i = 0; i < WORDS; ++i) {
            const int at = i * WARPS + warp;
            if (at < GROUPS * ROW_BLOCKS) shared.x[at / ROW_BLOCKS][at % ROW_BLOCKS][lane] = words[i];
        }
        if (EPILOGUE != ADD)
#pragma unroll
            for (int i = 0; i < WARP_ROWS; ++i) {
                for (int mask = 16; mask > 0; mask /= 2) sums[i] += shuffle_xor(sums[i], mask);
                const int row = i * WARPS + warp;
                if (lane == 0 && row < ROWS) shared.scale[row] = rsqrtf(sums[i] / DEPTH + (float)p.eps);
            }
    }
    DEVICE_MEMBER void multiply_step(int step, float (&sums)[2][ROW_BLOCKS][4]) {
#pragma unroll
        for (int group = 0; group < STEP_GROUPS; ++group) {
            const uint4 high = shared.ring[step % RING][warp][group][0][lane];
            const uint4 low = shared.ring[step % RING][warp][group][1][lane];
#pragma unroll
            for (int block = 0; block < ROW_BLOCKS; ++block) {
                const uint4 row = shared.x[step % TILE_STEPS * STEP_GROUPS + group][block][lane];
                mma_16x8x16(sums[0][block], {high.x, low.x, high.y, low.y}, row.x, row.y);
                mma_16x8x16(sums[1][block], {high.z, low.z, high.w, low.w}, row.z, row.w);
            }
        }
    }
    DEVICE_MEMBER void multiply() {
#pragma unroll 1
        for (int tile = 0; tile < WARP_TILES; ++tile) {
            float sums[2][ROW_BLOCKS][4] = {};
#pragma unroll 1
            for (int i = 0; i < TILE_STEPS; ++i) {
                const int step = tile * TILE_STEPS + i;
                wait_copies<RING - 1>();
                multiply_step(step, sums);
                copy_step(step + RING);
            }
#pragma unroll
            for (int block = 0; block < ROW_BLOCKS; ++block) {
                const float (&even)[4] = sums[0][block], (&odd)[4] = sums[1][block];
                const int fragment = (warp * WARP_TILES + tile) * ROW_BLOCKS + block;
                store_async(
                    &shared.inbox[rank][fragment % OWN_FRAGMENTS][lane],
                    cluster_offset(&shared, fragment / OWN_FRAGMENTS),
                    make_float4(even[0] + odd[0], even[1] + odd[1], even[2] + odd[2], even[3] + odd[3]),
                    shared.inbox_full
                );
            }
        }
    }
    DEVICE_MEMBER size_t residual_at(int tile, int row, int half) const {
        return (size_t)row * LINES + line_of(tile, half);
    }
    DEVICE_MEMBER float load_residual(int tile, int row, int half) const {
        return row < p.rows ? load_float(p.residual + residual_at(tile, row, half)) : 0.0f;
    }
    DEVICE_MEMBER u16 rounded(float value) const { return (u16)pack_bf16(value, 0.0f); }
    // Stores lines `quad` and `quad + 8` of a tile for one row.
    DEVICE_MEMBER void store(int tile, int row, float high, float low) {
        if (EPILOGUE == ADD) {
            float square = high * high + low * low;
            for (int mask = 4; mask < 32; mask *= 2) square += shuffle_xor(square, mask);
            if (quad == 0 && row < p.rows) p.sum_sq[(size_t)row * SUMS + cluster * TILES + tile] = square;
        }
        if (row >= p.rows) return;
        const float scale = EPILOGUE == ADD ? 1.0f : shared.scale[row];
        u16 *const to = p.out + (size_t)row * RESULT;
        if (EPILOGUE == SWIGLU) {
            const float gate = high * scale;
            to[line_of(tile, 0)] = rounded(gate / (1.0f + fast_exp(-gate)) * low * scale);
            return;
        }
        to[line_of(tile, 0)] = rounded(high * scale);
        to[line_of(tile, 1)] = rounded(low * scale);
        if (EPILOGUE == ADD) {
            p.residual[residual_at(tile, row, 0)] = high;
            p.residual[residual_at(tile, row, 1)] = low;
        }
    }
    DEVICE_MEMBER void run() {
#pragma unroll
        for (int step = 0; step < RING; ++step) copy_step(step);
        pdl_launch();
        if (thread == 0) {
            mbarrier_init(shared.inbox_full, 1);
            fence_mbarrier_init();
            mbarrier_expect_tx(shared.inbox_full, RANKS * OWN_FRAGMENTS * 32 * 16);
        }
        // From here on the other blocks of the cluster may write to the inbox. No block ends before its inbox is full.
        sync_cluster();
        pdl_wait();
        const int own = (rank * OWN_FRAGMENTS + warp) / ROW_BLOCKS;
        const int own_row = (rank * OWN_FRAGMENTS + warp) % ROW_BLOCKS * 8 + pair * 2;
        float4 residual = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (EPILOGUE == ADD && warp < OWN_FRAGMENTS)
            residual = make_float4(
                load_residual(own, own_row, 0), load_residual(own, own_row + 1, 0), load_residual(own, own_row, 1),
                load_residual(own, own_row + 1, 1)
            );
        load_rows();
        sync_block();
        multiply();
        for (int at = warp; at < OWN_FRAGMENTS; at += WARPS) {
            while (!all_lanes(mbarrier_try_wait(shared.inbox_full, 0))) {}
            float4 sum = residual;
#pragma unroll
            for (int from = 0; from < RANKS; ++from) {
                const float4 part = shared.inbox[from][at][lane];
                sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
            }
            const int fragment = rank * OWN_FRAGMENTS + at, row = fragment % ROW_BLOCKS * 8 + pair * 2;
            store(fragment / ROW_BLOCKS, row, sum.x, sum.z);
            store(fragment / ROW_BLOCKS, row + 1, sum.y, sum.w);
        }
    }
};

CLUSTER_KERNEL(streamed_product, WARPS * 32, RANKS) { Product{p, *(Shared *)shared_memory()}.run(); }
