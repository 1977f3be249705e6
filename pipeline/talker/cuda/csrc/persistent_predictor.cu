// The code predictor for a few rows as one kernel: all passes of a frame, with their draws.
//
// What a block streams through its ring of shared memory are weights, in an order known long before: their copies run
// ahead of all waiting. Products that read the residual stream, which is narrow, are cut by columns: a block makes some
// from all of it, its warps taking slices of the depth. Products that add to it read more than a block could: a
// cluster of RANKS blocks makes some columns, each of its blocks a RANKS-th of the depth, and the parts go to the
// block of the cluster that owns the row, straight from registers into its shared memory. The owner of a row adds them
// up, keeps its residual stream, attends for it, and tells all others.
//
// Nobody waits at a barrier of all blocks. Activations travel as packets that carry their epoch with them, so one trip
// through the second level cache is all there is. No buffer can be overwritten too early: who sends the message after
// next has seen messages that exist only because everybody has read the ones before.
//
// Rows: a matrix instruction has 16; rank r of a cluster owns rows r and r + 8.

#include "predictor_attention.h"

struct Worker : Attention {
    using Attention::Attention;
    int narrow_turn = 0;
    float4 residual; // of rows rank and rank + 8, of the first warps only, by slot

    // --- a pass's beginning
    // What the row of each of the first 16 lanes goes on with.
    DEVICE_MEMBER int id_of_lane() {
        const int row = lane % 16 < p.rows ? lane % 16 : (int)p.rows - 1;
        if (pass == 0) return row;
        if (pass == 1) return (int)p.first[row];
        u64 packet;
        const u32 wanted = epoch - 1;
        patience.until([&] {
            packet = look_at_one(p.drawn + row);
            return packet >> 32 == wanted;
        });
        return (int)packet;
    }
    DEVICE_MEMBER void begin_pass() {
        const u16 *const table = pass == 0 ? p.start : p.inputs[pass - 1];
        const float *const squares = pass == 0 ? p.start_squares : p.squares[pass - 1];
        const int id = id_of_lane();
        sync_warp();
        constexpr int EIGHTS = SLICE / 8, ITEMS = 16 * EIGHTS / 32;
        uint4 words[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int item = i * 32 + lane;
            words[i] = *(const uint4 *)(table + (size_t)shuffle(id, item / EIGHTS) * HIDDEN + warp * SLICE
                                        + item % EIGHTS * 8);
        }
        const int column = cluster * (HIDDEN / CLUSTERS) + thread % NARROW_SLOTS / 4 * 8 + pair * 2;
        const int first = shuffle(id, row_of(0)), second = shuffle(id, row_of(1));
        const u32 one = *(const u32 *)(table + (size_t)first * HIDDEN + column);
        const u32 two = *(const u32 *)(table + (size_t)second * HIDDEN + column);
        begun[0] = scale(squares[first]);
        begun[1] = scale(squares[second]);
        residual = make_float4(low_half(one), high_half(one), low_half(two), high_half(two));
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int row = (i * 32 + lane) / EIGHTS, eight = (i * 32 + lane) % EIGHTS;
            u32 *to = own_x() + (eight / 2 * 32 + row % 8 * 4) * 4 + eight % 2 * 2 + row / 8;
            to[0] = words[i].x;
            to[4] = words[i].y;
            to[8] = words[i].z;
            to[12] = words[i].w;
        }
        sync_warp();
    }

    // --- ends of products
    // Adds to the residual stream, and tells everybody.
    DEVICE_MEMBER void add_and_tell(int kind) {
        if (warp >= NARROW_WARPS) return;
        patience.until([&] { return arrived(shared.narrow_there, narrow_turn); });
        const float4 x = residual = add(residual, total(shared.narrow, thread));
        const int block = thread / 4;
        u64 *to = p.x + kind * X_WORDS
            + ((cluster * (HIDDEN / CLUSTERS / 16) + block / 2) * 32 + rank * 4 + pair) * 4 + block % 2 * 2;
        put(to, Packets{packet(pack_bf16(x.x, x.y)), packet(pack_bf16(x.z, x.w))});
        const float one = sum_of_warp(x.x * x.x + x.y * x.y), two = sum_of_warp(x.z * x.z + x.w * x.w);
        if (lane == 0)
            put(p.sums + ((kind * RANKS + rank) * SUMS + cluster * NARROW_WARPS + warp) * 2,
                Packets{packet(bits_of(one)), packet(bits_of(two))});
    }
    DEVICE_MEMBER float swiglu(float gate, float up) { return gate / (1.0f + fast_exp(-gate)) * up; }
    DEVICE_MEMBER void gate_and_tell() {
        // Units of gates and of what they are for lie in turn.
        if (warp >= GATE_N / 2) return;
        const float4 gate = unit_total(2 * warp), up = unit_total(2 * warp + 1);
        const float one = shared.scales[quad], two = shared.scales[quad + 8];
        const int deep = cluster * (INNER / CLUSTERS / 16) + (warp * RANKS + rank) / 2;
        put(p.inner + (deep * 32 + lane) * 4 + rank % 2 * 2,
            Packets{packet(pack_bf16(swiglu(gate.x * one, up.x * one), swiglu(gate.y * one, up.y * one))),
                    packet(pack_bf16(swiglu(gate.z * two, up.z * two), swiglu(gate.w * two, up.w * two)))});
    }
    DEVICE_MEMBER void tell_logits() {
        if (warp >= HEAD_N) return;
        const float4 sum = unit_total(warp);
        const int id = cluster * (VOCAB / CLUSTERS) + (warp * RANKS + rank) * 8 + pair * 2;
        // Where the thread that draws looks for ids i and i + THREADS.
        u64 *to = p.logits + (size_t)quad * VOCAB + (id / THREADS / 2 * THREADS + id % THREADS) * 2 + id / THREADS % 2;
        if (quad < p.rows) {
            put(to, packet(bits_of(sum.x * shared.scales[quad])));
            put(to + 2, packet(bits_of(sum.y * shared.scales[quad])));
        }
        to += (size_t)8 * VOCAB;
        if (quad + 8 < p.rows) {
            put(to, packet(bits_of(sum.z * shared.scales[quad + 8])));
            put(to + 2, packet(bits_of(sum.w * shared.scales[quad + 8])));
        }
    }
    DEVICE_MEMBER void draw() {
        // One row a block, on different clusters first.
        const int row = rank * CLUSTERS + cluster;
        if (row >= p.rows) return;
        const size_t at = (size_t)row * (GROUPS - 1) + pass - 1;
        const float heat = p.inverse_temperature[row], top_p = p.top_p[row], uniform = p.noise[at];
        const i64 limit = p.limit[row];
        Packets packets[PER_THREAD / 2];
        const u64 *from = p.logits + (size_t)row * VOCAB;
        patience.until([&] {
            bool there = true;
#pragma unroll
            for (int i = 0; i < PER_THREAD / 2; ++i) packets[i] = look(from + (i * THREADS + thread) * 2);
#pragma unroll
            for (int i = 0; i < PER_THREAD / 2; ++i)
                there &= packets[i].first >> 32 == epoch && packets[i].second >> 32 == epoch;
            return there;
        });
        float logits[PER_THREAD];
#pragma unroll
        for (int i = 0; i < PER_THREAD / 2; ++i) {
            logits[2 * i] = float_of((u32)packets[i].first);
            logits[2 * i + 1] = float_of((u32)packets[i].second);
        }
        Draw draw(shared.draw);
        const int code = draw.of(logits, heat, limit, top_p, uniform);
        if (thread > 0) return;
        put(p.drawn + row, packet(code));
        p.codes[at] = code;
    }

    // --- the whole of it. In each part weights come into registers first, then activations into shared memory.
    DEVICE_MEMBER void query_keys(int layer) {
        uint4 weights[QKV_N][STEPS / 2];
        float sums[QKV_N][4] = {};
        if (thread == 0) expect(shared.totals_there, QKV_SLOTS * 16);
        take(weights);
        if (layer == 0) begin_pass();
        else gather_slice(p.x + X_WORDS, epoch - 1);
        const Packets squares = ask_squares(1, rank);
        add_slice(sums, weights);
        sync_warp();
        leave(sums, 0);
        sync_workers();
        // All of a row to its owner.
        if (warp < QKV_N)
            send(&shared.totals[(warp * RANKS + rank) * 4 + pair], owner, unit_total(warp), shared.totals_there);
        if (layer > 0) norm(1, rank, epoch - 1, squares, begun);
    }
    DEVICE_MEMBER void add_attention() {
        uint4 weights[OUT_UNITS][STEPS / 2];
        if (thread == 0) expect(shared.narrow_there, RANKS * NARROW_SLOTS * 16);
        take(weights);
        gather<MIXED_WORDS / RANKS>(p.mixed + rank * (MIXED_WORDS / RANKS), shared.mixed, epoch);
        sync_workers();
        deep_product<OUT_PARTS>(weights, shared.mixed, shared.narrow[rank]);
        add_and_tell(0);
        ++narrow_turn;
    }
    DEVICE_MEMBER void gates() {
        // Half of its weights at a time: all would be more than a thread has registers.
        uint4 weights[GATE_N / 2][STEPS / 2];
        float sums[2][GATE_N / 2][4] = {};
        take(weights);
        gather_slice(p.x, epoch);
        const Packets squares = ask_squares(0, warp);
        add_slice(sums[0], weights);
        take(weights);
        add_slice(sums[1], weights);
        norms(0, epoch, squares);
        sync_warp();
        leave(sums[0], 0);
        leave(sums[1], GATE_N / 2);
        sync_workers();
        gate_and_tell();
    }
    DEVICE_MEMBER void add_gated() {
        uint4 weights[DOWN_UNITS][STEPS / 2];
        if (thread == 0) expect(shared.narrow_there, RANKS * NARROW_SLOTS * 16);
        take(weights);
        gather<INNER_WORDS / RANKS>(p.inner + rank * (INNER_WORDS / RANKS), shared.inner, epoch);
        sync_workers();
        deep_product<DOWN_PARTS>(weights, shared.inner, shared.narrow[rank]);
        add_and_tell(1);
        ++narrow_turn;
    }
    DEVICE_MEMBER void end_pass() {
        if (pass == 0) {
            // There is nothing to draw, but nobody may be a pass ahead.
            gather_slice(p.x + X_WORDS, epoch - 1);
            return;
        }
        uint4 weights[HEAD_N][STEPS / 2];
        float sums[HEAD_N][4] = {};
        take(weights);
        gather_slice(p.x + X_WORDS, epoch - 1);
        const Packets squares = ask_squares(1, warp);
        add_slice(sums, weights);
        norms(1, epoch - 1, squares);
        sync_warp();
        leave(sums, 0);
        sync_workers();
        tell_logits();
        draw();
    }
    DEVICE_MEMBER void run() {
        for (pass = 0; pass < GROUPS; ++pass) {
            for (int layer = 0; layer < LAYERS; ++layer, ++epoch) {
                query_keys(layer);
                attend(layer);
                ++totals_turn;
                add_attention();
                gates();
                add_gated();
            }
            end_pass();
            ++epoch;
        }
    }
};

CLUSTER_KERNEL(persistent_predictor, THREADS + 128, RANKS) {
    Shared &shared = *(Shared *)shared_memory();
    if (thread_index() == 0) {
        for (Arrival &arrival : shared.full) prepare(arrival, 1);
        for (Arrival &arrival : shared.empty) prepare(arrival, WARPS);
        prepare(shared.totals_there, 1);
        prepare(shared.narrow_there, 1);
        publish_arrivals();
    }
    sync_cluster();
    if (thread_index() < THREADS) {
        more_registers();
        Worker worker(p, shared);
        worker.run();
        if (block_index() == 0 && thread_index() == 0) *p.epoch = worker.epoch;
    } else {
        fewer_registers();
        if (thread_index() == THREADS) Fetcher{p, shared}.run();
    }
    sync_warp();
    // Nobody leaves while parts of products may still come.
    sync_cluster();
}
