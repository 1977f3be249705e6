// The code predictor of few rows as one kernel: all passes of a frame with their draws.
//
// A block streams its weights through a ring of shared memory, in an order known in advance: the copies run ahead of
// all waiting. Products that read the residual stream are divided by columns: a block computes its columns over the
// whole depth, which its warps divide among them. Products that add to the residual stream have too much depth for one
// block: a cluster of RANKS blocks computes some columns, each block over 1/RANKS of the depth, and sends its partial
// sums from registers to the shared memory of the block that owns the row. The owner of a row adds them, keeps its
// residual stream, computes its attention and sends the result to all blocks.
//
// There is no grid-wide barrier. Activations travel as packets that carry their epoch, so a message costs one trip
// through the second-level cache. No buffer is overwritten too early: a block sends the message after next only after
// messages that exist because every block has read the previous ones.
//
// A matrix instruction has 16 rows, a tile; rank r of a cluster owns the rows r and r + 8 of each of the TILES.
//
// Its blocks wait for one another, so all must come to run. The launch is cooperative, and it is made only where the
// driver counts room for all clusters. Each block takes a multiprocessor alone: 64 of a Hopper's 114 to 132. What is
// launched beside it in this process, also at a higher priority or in clusters, waits for none of its blocks, finds the
// other multiprocessors, ends, and leaves room for blocks that were not placed yet. Processes that share a GPU by time
// slices are never on it together. Under MPS they are: two of these kernels at once may each hold what the other needs.
// The polls are bounded for that, and for faults.

#include "predictor_attention.h"

struct Worker : Attention {
    using Attention::Attention;
    int narrow_phase = 0;
    float4 residual; // of rows rank and rank + 8 of a tile; first TILES * NARROW_WARPS warps only, by slot

    DEVICE_MEMBER int tile_of_slot() { return thread / NARROW_SLOTS % TILES; }

    // --- start of a pass
    // The embedding row with which the batch row of each of the first ROWS lanes starts this pass.
    DEVICE_MEMBER int id_of_lane() {
        const int row = lane % ROWS < p.rows ? lane % ROWS : (int)p.rows - 1;
        if (pass == 0) return row;
        if (pass == 1) return (int)p.first[row];
        u64 packet;
        const u32 wanted = epoch - 1;
        spin.until([&] {
            packet = load_packet(p.sampled + row);
            return packet >> 32 == wanted;
        });
        return (int)packet;
    }
    DEVICE_MEMBER void start_pass() {
        const u16 *const table = pass == 0 ? p.start : p.inputs[pass - 1];
        const float *const squares = pass == 0 ? p.start_sum_sq : p.input_sum_sq[pass - 1];
        const int id = id_of_lane();
        sync_warp();
        // The lanes load blocks of eight channels of ROWS_AT_ONCE rows at a time.
        constexpr int BLOCKS_OF_8 = SLICE / 8, ROWS_AT_ONCE = 32 / BLOCKS_OF_8, ITEMS = ROWS / ROWS_AT_ONCE;
        static_assert(32 % BLOCKS_OF_8 == 0 && 8 % ROWS_AT_ONCE == 0);
        const int block_of_8 = lane % BLOCKS_OF_8, lane_row = lane / BLOCKS_OF_8;
        uint4 words[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i)
            words[i] = *(const uint4 *)(table + (size_t)shuffle(id, i * ROWS_AT_ONCE + lane_row) * HIDDEN + warp * SLICE
                                        + block_of_8 * 8);
        const int column = cluster * (HIDDEN / CLUSTERS) + thread % NARROW_SLOTS / 4 * 8 + pair * 2;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const int first = shuffle(id, row_of(2 * tile)), second = shuffle(id, row_of(2 * tile + 1));
            row_scale[2 * tile] = rms_scale(squares[first]);
            row_scale[2 * tile + 1] = rms_scale(squares[second]);
            if (tile != tile_of_slot()) continue;
            const u32 one = *(const u32 *)(table + (size_t)first * HIDDEN + column);
            const u32 two = *(const u32 *)(table + (size_t)second * HIDDEN + column);
            residual = make_float4(low_bf16(one), high_bf16(one), low_bf16(two), high_bf16(two));
        }
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int row = i * ROWS_AT_ONCE;
            u32 *to = warp_slice() + word_of(block_of_8 / 2, row / 16, (row % 8 + lane_row) * 4) + block_of_8 % 2 * 2
                + row % 16 / 8;
            to[0] = words[i].x;
            to[4] = words[i].y;
            to[8] = words[i].z;
            to[12] = words[i].w;
        }
        sync_warp();
    }

    // --- epilogues
    // Adds the product to the residual stream, and sends the sum to all blocks.
    DEVICE_MEMBER void add_residual(int kind) {
        if (warp >= TILES * NARROW_WARPS) return;
        spin.until([&] { return mbarrier_try_wait(shared.narrow_ready, narrow_phase); });
        const float4 x = residual = add_float4(residual, sum_parts(shared.narrow, thread));
        const int tile = tile_of_slot(), block = thread % NARROW_SLOTS / 4;
        u64 *to = p.x + kind * X_WORDS
            + word_of(cluster * (HIDDEN / CLUSTERS / 16) + block / 2, tile, rank * 4 + pair) + block % 2 * 2;
        store_packet(to, Packets{packet(pack_bf16(x.x, x.y)), packet(pack_bf16(x.z, x.w))});
        const float one = warp_sum(x.x * x.x + x.y * x.y), two = warp_sum(x.z * x.z + x.w * x.w);
        if (lane == 0)
            store_packet(
                p.sum_sq
                    + (((kind * TILES + tile) * RANKS + rank) * SUMS + cluster * NARROW_WARPS + warp % NARROW_WARPS) * 2,
                Packets{packet(bits_of(one)), packet(bits_of(two))});
    }
    DEVICE_MEMBER float swiglu(float gate, float up) { return gate / (1.0f + fast_exp(-gate)) * up; }
    // `first`: the number of the first unit whose sums are in shared memory.
    DEVICE_MEMBER void store_gated(int first) {
        // Units of gate and of up alternate.
        const int unit = warp / TILES * 2, tile = warp % TILES;
        if (unit >= GATE_N / GATE_ROUNDS) return;
        const float4 gate = sum_unit(unit, tile), up = sum_unit(unit + 1, tile);
        const float one = shared.scales[tile * 16 + quad], two = shared.scales[tile * 16 + quad + 8];
        const int depth_block = cluster * (INNER / CLUSTERS / 16) + ((first + unit) / 2 * RANKS + rank) / 2;
        store_packet(p.inner + word_of(depth_block, tile, lane) + rank % 2 * 2,
            Packets{packet(pack_bf16(swiglu(gate.x * one, up.x * one), swiglu(gate.y * one, up.y * one))),
                    packet(pack_bf16(swiglu(gate.z * two, up.z * two), swiglu(gate.w * two, up.w * two)))});
    }
    DEVICE_MEMBER void store_logits() {
        const int unit = warp / TILES, row = warp % TILES * 16 + quad;
        if (unit >= HEAD_N) return;
        const float4 sum = sum_unit(unit, warp % TILES);
        const int id = cluster * (VOCAB / CLUSTERS) + (unit * RANKS + rank) * 8 + pair * 2;
        // In the order in which the drawing thread reads ids i and i + THREADS.
        u64 *to = p.logits + (size_t)row * VOCAB + (id / THREADS / 2 * THREADS + id % THREADS) * 2 + id / THREADS % 2;
        if (row < p.rows) {
            store_packet(to, packet(bits_of(sum.x * shared.scales[row])));
            store_packet(to + 2, packet(bits_of(sum.y * shared.scales[row])));
        }
        to += (size_t)8 * VOCAB;
        if (row + 8 < p.rows) {
            store_packet(to, packet(bits_of(sum.z * shared.scales[row + 8])));
            store_packet(to + 2, packet(bits_of(sum.w * shared.scales[row + 8])));
        }
    }
    DEVICE_MEMBER void draw_rows() {
        Draw draw(shared.draw);
        // Different rows on different blocks, and those on different clusters first.
#pragma unroll
        for (int first = 0; first < ROWS; first += BLOCKS) {
            const int row = first + rank * CLUSTERS + cluster;
            if (row < p.rows) draw_row(draw, row);
        }
    }
    DEVICE_MEMBER void draw_row(Draw &draw, int row) {
        const size_t at = (size_t)row * (GROUPS - 1) + pass - 1;
        const float inv_temperature = p.inverse_temperature[row], top_p = p.top_p[row], uniform = p.noise[at];
        const i64 top_k = p.top_k[row];
        Packets packets[PER_THREAD / 2];
        const u64 *from = p.logits + (size_t)row * VOCAB;
        spin.until([&] {
            bool ready = true;
#pragma unroll
            for (int i = 0; i < PER_THREAD / 2; ++i) packets[i] = load_packets(from + (i * THREADS + thread) * 2);
#pragma unroll
            for (int i = 0; i < PER_THREAD / 2; ++i)
                ready &= packets[i].first >> 32 == epoch && packets[i].second >> 32 == epoch;
            return ready;
        });
        float logits[PER_THREAD];
#pragma unroll
        for (int i = 0; i < PER_THREAD / 2; ++i) {
            logits[2 * i] = float_of((u32)packets[i].first);
            logits[2 * i + 1] = float_of((u32)packets[i].second);
        }
        const int code = draw.sample(logits, inv_temperature, top_k, top_p, uniform);
        if (thread > 0) return;
        store_packet(p.sampled + row, packet(code));
        p.codes[at] = code;
    }

    // --- the whole pass. Every product loads weights into registers first, then activations into shared memory.
    DEVICE_MEMBER void qkv_product(int layer) {
        uint4 weights[QKV_N][STEPS / 2];
        float sums[TILES][QKV_N][4] = {};
        if (thread == 0) mbarrier_expect_tx(shared.qkv_ready, TILES * QKV_SLOTS * 16);
        load_weights(weights);
        if (layer == 0) start_pass();
        else gather_slice(p.x + X_WORDS, epoch - 1);
        const SquareParts squares = request_sum_sq(1, rank);
        slice_product(sums, weights);
        sync_warp();
        store_sums(sums, 0);
        sync_compute_warps();
        // All columns of a row go to the block that owns it.
        if (warp < QKV_N)
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
                store_async(&shared.qkv_sums[tile][(warp * RANKS + rank) * 4 + pair], owner_offset,
                    sum_unit(warp, tile), shared.qkv_ready);
        if (layer > 0) row_scales(1, rank, epoch - 1, squares, row_scale);
    }
    DEVICE_MEMBER void out_product() {
        uint4 weights[OUT_UNITS][STEPS / 2];
        if (thread == 0) mbarrier_expect_tx(shared.narrow_ready, RANKS * TILES * NARROW_SLOTS * 16);
        load_weights(weights);
        gather<ATTENDED_WORDS / RANKS>(p.attended + rank * (ATTENDED_WORDS / RANKS), shared.attended, epoch);
        sync_compute_warps();
        deep_product<OUT_PARTS>(weights, shared.attended, shared.narrow[rank]);
        add_residual(0);
        ++narrow_phase;
    }
    DEVICE_MEMBER void gate_up_product() {
        // Half of the weights at a time: all of them exceed the registers of a thread.
        uint4 weights[GATE_N / 2][STEPS / 2];
        float sums[2][TILES][GATE_N / 2][4] = {};
        load_weights(weights);
        gather_slice<TILES * POLLS>(p.x, epoch);
        const SquareParts squares = request_sum_sq(0, warp);
        slice_product(sums[0], weights);
        load_weights(weights);
        slice_product(sums[1], weights);
        store_scales(0, epoch, squares);
        sync_warp();
#pragma unroll
        for (int round = 0; round < GATE_ROUNDS; ++round) {
            if (round > 0) sync_compute_warps();
#pragma unroll
            for (int half = 0; half < 2 / GATE_ROUNDS; ++half) store_sums(sums[round + half], half * (GATE_N / 2));
            sync_compute_warps();
            store_gated(round * (GATE_N / GATE_ROUNDS));
        }
    }
    DEVICE_MEMBER void down_product() {
        uint4 weights[DOWN_UNITS][STEPS / 2];
        if (thread == 0) mbarrier_expect_tx(shared.narrow_ready, RANKS * TILES * NARROW_SLOTS * 16);
        load_weights(weights);
        gather<INNER_WORDS / RANKS>(p.inner + rank * (INNER_WORDS / RANKS), shared.inner, epoch);
        sync_compute_warps();
        deep_product<DOWN_PARTS>(weights, shared.inner, shared.narrow[rank]);
        add_residual(1);
        ++narrow_phase;
    }
    DEVICE_MEMBER void head_product() {
        if (pass == 0) {
            // Position 0 draws nothing, but no block may run a pass ahead.
            gather_slice(p.x + X_WORDS, epoch - 1);
            return;
        }
        uint4 weights[HEAD_N][STEPS / 2];
        float sums[TILES][HEAD_N][4] = {};
        load_weights(weights);
        gather_slice(p.x + X_WORDS, epoch - 1);
        const SquareParts squares = request_sum_sq(1, warp);
        slice_product(sums, weights);
        store_scales(1, epoch - 1, squares);
        sync_warp();
        store_sums(sums, 0);
        sync_compute_warps();
        store_logits();
        draw_rows();
    }
    DEVICE_MEMBER void run() {
        for (pass = 0; pass < GROUPS; ++pass) {
            for (int layer = 0; layer < LAYERS; ++layer, ++epoch) {
                qkv_product(layer);
                attend(layer);
                ++qkv_phase;
                out_product();
                gate_up_product();
                down_product();
            }
            head_product();
            ++epoch;
        }
    }
};

CLUSTER_KERNEL(persistent_predictor, THREADS + 128, RANKS) {
    Shared &shared = *(Shared *)shared_memory();
    if (thread_index() == 0) {
        for (Mbarrier &arrival : shared.full) mbarrier_init(arrival, 1);
        for (Mbarrier &arrival : shared.empty) mbarrier_init(arrival, WARPS);
        mbarrier_init(shared.qkv_ready, 1);
        mbarrier_init(shared.narrow_ready, 1);
        fence_mbarrier_init();
    }
    sync_cluster();
    if (thread_index() < THREADS) {
        setmaxnreg_inc_240();
        Worker worker(p, shared);
        worker.run();
        if (block_index() == 0 && thread_index() == 0) *p.epoch = worker.epoch;
    } else {
        setmaxnreg_dec_24();
        if (thread_index() == THREADS) WeightLoader{p, shared}.run();
    }
    sync_warp();
    // A block must not exit while other blocks may still write to its shared memory.
    sync_cluster();
}
