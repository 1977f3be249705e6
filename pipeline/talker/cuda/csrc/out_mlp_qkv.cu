// Few rows from the output of one layer's attention to the queries, keys and values of the next layer.
//
// Weights stream through a ring of shared memory in the order in which `packed` has laid them out: while blocks wait
// for one another, and even before the previous kernels have ended, the copy engine fills the ring. A cluster of RANKS
// blocks computes some columns of every product, each block over 1/RANKS of the inner width, which its warps divide; a
// warp keeps its part of the rows in registers. Partial sums are added within the block first, and then sent to the
// block that owns the columns.
//
// A matrix instruction takes 16 lines of the matrix and 8 rows. Within 32 of the inner width, a lane's 8 neighbouring
// values stand for those that the instruction assigns to it: the order of a sum is irrelevant as long as rows and
// matrix agree.

#include "device.h"

constexpr int STORE = 0, SWIGLU = 1, ADD = 2; // what the epilogue does with a product
constexpr int UNIT = 16 * SPAN;             // of the ring: 16 lines of a matrix
constexpr int GROUPS = SPAN / WARPS / 32;   // blocks of 32 of the inner width in a warp's part of a unit
constexpr int PARTS = ROW_BLOCKS * 32;          // float4s of 16 columns of a product
constexpr int WARP_ROWS = (ROW_BLOCKS * 8 + WARPS - 1) / WARPS; // rows whose norm a warp computes
constexpr int RANK_BLOCKS = BLOCKS / RANKS;      // blocks that compute 1/RANKS of the columns of a product

template <int DEPTH_, int WIDTH_, int EPILOGUE_, int PASSES_> struct Product {
    static constexpr int DEPTH = DEPTH_, WIDTH = WIDTH_, EPILOGUE = EPILOGUE_;
    static constexpr int SLICE = DEPTH / RANKS;               // of the inner width, for a block
    static constexpr int TILES = WIDTH / 16 * RANKS / BLOCKS; // of 16 lines, for a cluster
    static constexpr int OWN_TILES = TILES / RANKS;                 // of them, tiles whose columns a block owns
    static constexpr int STEPS = SLICE / SPAN, UNITS = TILES * STEPS;
    static constexpr int PASSES = PASSES_, PASS_STEPS = STEPS / PASSES; // over the inner width, to limit registers
    static_assert(TILES * BLOCKS * 16 == WIDTH * RANKS && OWN_TILES * RANKS == TILES && TILES % BATCH == 0);
    static_assert(STEPS * SPAN * RANKS == DEPTH && GROUPS * WARPS * 32 == SPAN);
    static_assert(STEPS % PASSES == 0 && (PASSES == 1 || TILES == BATCH));
    static_assert(EPILOGUE != ADD || OWN_TILES == 1, "whose sums stay in registers");
};
using Output = Product<ATTENDED, HIDDEN, ADD, 1>;
using Gates = Product<HIDDEN, 2 * INNER, SWIGLU, 1>;
using Down = Product<INNER, HIDDEN, ADD, DOWN_PASSES>;
using Next = Product<HIDDEN, QKV, STORE, 1>;
static_assert(BLOCKS <= SUMS && SUMS % 32 == 0 && PARTS <= THREADS && BATCH * PARTS <= THREADS * 4);

struct Params {
    const u16 *out, *gate_up, *down; // null before the first layer
    const u16 *qkv;                  // null behind the last layer
    const u16 *attended;                // [rows, ATTENDED]
    u16 *x;                          // [rows, HIDDEN], the residual stream, rounded
    u16 *inner;                      // [rows, INNER]
    u16 *queries;                    // [rows, QKV]
    float *residual;                     // [rows, HIDDEN], the residual stream
    float *sum_sq;                  // [rows, SUMS], parts of the sum of its squares
    u32 *counters;                       // [3, RANKS], blocks that have finished a product; zero at first
    i64 rows;
    double eps;
};

struct Shared {
    u16 ring[RING][UNIT];
    float4 parts[WARPS][BATCH][PARTS];
    float4 inbox[RANKS][Gates::OWN_TILES > Next::OWN_TILES ? Gates::OWN_TILES : Next::OWN_TILES][PARTS];
    float scale[ROW_BLOCKS * 8];
    Mbarrier full[RING], empty[RING], inbox_full;
};
static_assert(sizeof(Shared) <= SHARED);

struct WeightLoader {
    const Params &p;
    Shared &shared;
    int unit = 0;

    DEVICE_MEMBER void init_barriers() {
        for (int slot = 0; slot < RING; ++slot) {
            mbarrier_init(shared.full[slot], 1);
            mbarrier_init(shared.empty[slot], WARPS);
        }
        mbarrier_init(shared.inbox_full, 1);
        fence_mbarrier_init();
    }
    // Address of unit `unit` of a matrix, of this block's part; null when it is behind the matrix, whose units are then
    // subtracted from `unit`.
    template <class P> DEVICE_MEMBER const u16 *locate(const u16 *matrix, int &unit) {
        if (matrix == nullptr) return nullptr;
        if (unit < P::UNITS) return matrix + ((size_t)block_index() * P::UNITS + unit) * UNIT;
        unit -= P::UNITS;
        return nullptr;
    }
    // Address of the unit with this number, in the order of the products.
    DEVICE_MEMBER const u16 *locate(int unit) {
        const u16 *at = locate<Output>(p.out, unit);
        if (at == nullptr) at = locate<Gates>(p.gate_up, unit);
        if (at == nullptr) at = locate<Down>(p.down, unit);
        return at != nullptr ? at : locate<Next>(p.qkv, unit);
    }
    // Loads the units that have not been loaded, up to number `end`.
    DEVICE_MEMBER void run(int end) {
        for (; unit < end; ++unit) {
            const u16 *from = locate(unit);
            if (from == nullptr) return;
            const int slot = unit % RING;
            if (unit >= RING)
                while (!mbarrier_try_wait_cta(shared.empty[slot], unit / RING + 1)) {}
            mbarrier_expect_tx(shared.full[slot], UNIT * 2);
            tma_load(shared.ring[slot], from, UNIT * 2, shared.full[slot]);
        }
    }
};

struct Worker {
    const Params &p;
    Shared &shared;
    const int thread = thread_index(), warp = thread / 32, lane = thread % 32;
    const int quad = lane / 4, pair = lane % 4;
    const int cluster = block_index() / RANKS, rank = block_index() % RANKS;
    int slot = 0, round = 0, inbox_phase = 0;
    float4 own_residual = {0.0f, 0.0f, 0.0f, 0.0f}; // the part of the residual stream that this thread adds to

    // Address of `own_residual`: of two rows, the columns quad and quad + 8 of the 16 columns of the block.
    DEVICE_MEMBER size_t residual_at(int row, int half) {
        return (size_t)row * HIDDEN + block_index() * 16 + half * 8 + quad;
    }
    DEVICE_MEMBER void load_residual() {
        const int row = thread / 32 * 8 + pair * 2;
        if (row < p.rows) {
            own_residual.x = load_float(p.residual + residual_at(row, 0));
            own_residual.z = load_float(p.residual + residual_at(row, 1));
        }
        if (row + 1 < p.rows) {
            own_residual.y = load_float(p.residual + residual_at(row + 1, 0));
            own_residual.w = load_float(p.residual + residual_at(row + 1, 1));
        }
    }
    // Parts of the sums of squares of this warp's rows.
    DEVICE_MEMBER void load_sum_sq(float (&sum_sq)[WARP_ROWS]) {
#pragma unroll
        for (int i = 0; i < WARP_ROWS; ++i) {
            const int row = warp + i * WARPS;
            sum_sq[i] = 0.0f;
            if (row < p.rows)
#pragma unroll
                for (int part = 0; part < SUMS; part += 32)
                    sum_sq[i] += load_float(p.sum_sq + (size_t)row * SUMS + part + lane);
        }
    }
    DEVICE_MEMBER void store_scales(float (&sum_sq)[WARP_ROWS]) {
#pragma unroll
        for (int i = 0; i < WARP_ROWS; ++i) {
            for (int mask = 16; mask > 0; mask /= 2) sum_sq[i] += shuffle_xor(sum_sq[i], mask);
            const int row = warp + i * WARPS;
            if (lane == 0 && row < ROW_BLOCKS * 8) shared.scale[row] = rsqrtf(sum_sq[i] / HIDDEN + (float)p.eps);
        }
    }
    // Waits until all blocks have finished a product.
    DEVICE_MEMBER void wait_grid(int product) {
        if (warp == 0) {
            const u32 *at = p.counters + product * RANKS + lane % RANKS;
            for (int spins = 0; reduce_min(load_acquire(at)) < RANK_BLOCKS; ++spins)
                if (spins > SPINS) trap();
        }
        sync_compute_warps();
    }
    DEVICE_MEMBER void signal_grid(int product) {
        sync_compute_warps();
        if (thread == 0) add_release(p.counters + product * RANKS + block_index() / RANK_BLOCKS);
    }
    template <class P> DEVICE_MEMBER void finish(int tile, int row_block, float4 sum, u16 *out, bool last) {
        float4 value = sum;
        if (P::EPILOGUE == ADD) {
            value = make_float4(
                own_residual.x + sum.x, own_residual.y + sum.y, own_residual.z + sum.z, own_residual.w + sum.w
            );
            own_residual = value;
        }
        const float values[2][2] = {{value.x, value.z}, {value.y, value.w}};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = row_block * 8 + pair * 2 + i;
            const float low = values[i][0], high = values[i][1];
            if (row < p.rows) {
                if (P::EPILOGUE == SWIGLU) {
                    const float gate = low * shared.scale[row], up = high * shared.scale[row];
                    out[(size_t)row * (P::WIDTH / 2) + tile * 8 + quad] =
                        (u16)pack_bf16(gate / (1.0f + fast_exp(-gate)) * up, 0.0f);
                } else {
                    const float scale = P::EPILOGUE == STORE ? shared.scale[row] : 1.0f;
                    u16 *to = out + (size_t)row * P::WIDTH + tile * 16 + quad;
                    to[0] = (u16)pack_bf16(low * scale, 0.0f);
                    to[8] = (u16)pack_bf16(high * scale, 0.0f);
                    if (P::EPILOGUE == ADD && last) {
                        p.residual[residual_at(row, 0)] = low;
                        p.residual[residual_at(row, 1)] = high;
                    }
                }
            }
            if (P::EPILOGUE == ADD) {
                float square = low * low + high * high;
                for (int mask = 4; mask < 32; mask *= 2) square += shuffle_xor(square, mask);
                if (quad == 0 && row < p.rows) p.sum_sq[(size_t)row * SUMS + block_index()] = square;
            }
        }
    }
    // Adds PASS_STEPS units to the sums of a tile; `x`: the rows.
    template <class P>
    DEVICE_MEMBER void multiply_tile(const uint4 (&x)[P::PASS_STEPS][GROUPS][ROW_BLOCKS], float (&sum)[ROW_BLOCKS][4]) {
        float other[ROW_BLOCKS][4];
#pragma unroll
        for (int row_block = 0; row_block < ROW_BLOCKS; ++row_block)
#pragma unroll
            for (int i = 0; i < 4; ++i) other[row_block][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < P::PASS_STEPS; ++step) {
            while (!all_lanes(mbarrier_try_wait_cta(shared.full[slot], round))) {}
            const uint4 *from = (const uint4 *)shared.ring[slot] + warp * GROUPS * 64 + lane;
#pragma unroll
            for (int group = 0; group < GROUPS; ++group) {
                const uint4 low = from[group * 64], high = from[group * 64 + 32];
#pragma unroll
                for (int row_block = 0; row_block < ROW_BLOCKS; ++row_block) {
                    const uint4 row = x[step][group][row_block];
                    mma_16x8x16(sum[row_block], {low.x, high.x, low.y, high.y}, row.x, row.y);
                    mma_16x8x16(other[row_block], {low.z, high.z, low.w, high.w}, row.z, row.w);
                }
            }
            fence_async_proxy();
            sync_warp();
            if (lane == 0) mbarrier_arrive(shared.empty[slot]);
            if (++slot == RING) slot = 0, ++round;
        }
#pragma unroll
        for (int row_block = 0; row_block < ROW_BLOCKS; ++row_block)
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[row_block][i] += other[row_block][i];
    }
    template <class P>
    DEVICE_MEMBER void load_rows(uint4 (&x)[P::PASS_STEPS][GROUPS][ROW_BLOCKS], const u16 *rows, int pass) {
#pragma unroll
        for (int step = 0; step < P::PASS_STEPS; ++step)
#pragma unroll
            for (int group = 0; group < GROUPS; ++group)
#pragma unroll
                for (int row_block = 0; row_block < ROW_BLOCKS; ++row_block) {
                    const int row = row_block * 8 + quad, unit = pass * (P::PASS_STEPS) + step;
                    const int at = rank * P::SLICE + unit * SPAN + (warp * GROUPS + group) * 32 + pair * 8;
                    x[step][group][row_block] = make_uint4(0, 0, 0, 0);
                    if (row < p.rows) x[step][group][row_block] = load_words(rows + (size_t)row * P::DEPTH + at);
                }
    }
    template <class P> DEVICE_MEMBER void run(const u16 *rows, u16 *out, bool last) {
        uint4 x[P::PASSES][P::PASS_STEPS][GROUPS][ROW_BLOCKS];
        float sum_sq[WARP_ROWS];
        load_rows<P>(x[0], rows, 0);
        if (P::EPILOGUE != ADD) load_sum_sq(sum_sq);
        if (thread == 0) mbarrier_expect_tx(shared.inbox_full, RANKS * P::OWN_TILES * PARTS * 16);
#pragma unroll 1
        for (int tile = 0; tile < P::TILES; tile += BATCH) {
            float sum[BATCH][ROW_BLOCKS][4] = {};
#pragma unroll
            for (int pass = 0; pass < P::PASSES; ++pass) {
                // Load the rows of the next pass meanwhile.
                if (pass + 1 < P::PASSES) load_rows<P>(x[pass + 1], rows, pass + 1);
#pragma unroll
                for (int more = 0; more < BATCH; ++more) multiply_tile<P>(x[pass], sum[more]);
            }
            if (tile > 0)
                sync_compute_warps();
            else if (P::EPILOGUE != ADD)
                store_scales(sum_sq);
#pragma unroll
            for (int more = 0; more < BATCH; ++more)
#pragma unroll
                for (int row_block = 0; row_block < ROW_BLOCKS; ++row_block) {
                    const float (&own)[4] = sum[more][row_block];
                    shared.parts[warp][more][row_block * 32 + lane] = make_float4(own[0], own[1], own[2], own[3]);
                }
            sync_compute_warps();
            for (int at = thread; at < BATCH * PARTS; at += THREADS) {
                const int tile_number = tile + at / PARTS, part = at % PARTS;
                float4 sum = shared.parts[0][at / PARTS][part];
#pragma unroll
                for (int from = 1; from < WARPS; ++from) {
                    const float4 more = shared.parts[from][at / PARTS][part];
                    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
                }
                store_async(
                    &shared.inbox[rank][tile_number % P::OWN_TILES][part],
                    cluster_offset(&shared, tile_number / P::OWN_TILES), sum, shared.inbox_full
                );
            }
        }
        for (int at = thread; at < P::OWN_TILES * PARTS; at += THREADS) {
            while (!all_lanes(mbarrier_try_wait(shared.inbox_full, inbox_phase))) {}
            const int tile = at / PARTS, part = at % PARTS;
            float4 sum = shared.inbox[0][tile][part];
#pragma unroll
            for (int from = 1; from < RANKS; ++from) {
                const float4 more = shared.inbox[from][tile][part];
                sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
            }
            finish<P>(cluster * P::TILES + rank * P::OWN_TILES + tile, part / 32, sum, out, last);
        }
        ++inbox_phase;
    }
    DEVICE_MEMBER void run() {
        if (p.out != nullptr) {
            if (thread < PARTS) load_residual();
            run<Output>(p.attended, p.x, false);
            signal_grid(0);
            wait_grid(0);
            run<Gates>(p.x, p.inner, false);
            signal_grid(1);
            wait_grid(1);
            run<Down>(p.inner, p.x, true);
            if (p.qkv == nullptr) return;
            signal_grid(2);
            wait_grid(2);
        }
        run<Next>(p.x, p.queries, false);
    }
};

CLUSTER_KERNEL_MAXNREG(out_mlp_qkv, RANKS, REGISTERS) {
    Shared &shared = *(Shared *)shared_memory();
    const bool loads = thread_index() == THREADS;
    pdl_launch();
    WeightLoader loader{p, shared};
    if (loads) {
        loader.init_barriers();
        loader.run(RING);
    }
    sync_warp();
    // After this barrier other blocks of the cluster may write to the inbox. No block exits before its inbox is
    // complete.
    sync_cluster();
    if (loads) loader.run(1 << 30);
    if (thread_index() < THREADS) {
        pdl_wait();
        Worker{p, shared}.run();
    }
}
