// Activations come from other blocks as packets, weights from the ring; what products of both leave in shared memory.

#pragma once
#include "weight_ring.h"

struct Products {
    const Params &p;
    Shared &shared;
    const int thread, warp, lane, cluster, rank;
    const int quad, pair; // of the lane: the row of a matrix instruction, and the pair of columns
    Patience patience;
    const Distance owner;
    u32 epoch;
    int slot = 0, turn = 0;

    DEVICE_MEMBER Products(const Params &params, Shared &memory)
        : p(params), shared(memory), thread(thread_index()), warp(thread / 32), lane(thread % 32),
          cluster(block_index() / RANKS), rank(block_index() % RANKS), quad(lane / 4), pair(lane % 4),
          owner(distance_to(&memory, lane / 4)), epoch(*(volatile u32 *)params.epoch + 1) {}

    DEVICE_MEMBER u64 packet(u32 word) { return (u64)epoch << 32 | word; }
    DEVICE_MEMBER int row_of(int half) { return half * 8 + rank; }

    // Wait for COUNT words of this epoch, and leave them in shared memory.
    template <int COUNT> DEVICE_MEMBER void gather(const u64 *from, u32 *to, u32 wanted) {
        constexpr int LOADS = (COUNT / 2 + THREADS - 1) / THREADS;
        Packets packets[LOADS];
        patience.until([&] {
            bool there = true;
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
                if (i * THREADS + thread < COUNT / 2) packets[i] = look(from + 2 * (i * THREADS + thread));
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
                if (i * THREADS + thread < COUNT / 2)
                    there &= packets[i].first >> 32 == wanted && packets[i].second >> 32 == wanted;
            return there;
        });
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            if (i * THREADS + thread < COUNT / 2)
                *(uint2 *)(to + 2 * (i * THREADS + thread)) = make_uint2((u32)packets[i].first, (u32)packets[i].second);
    }

    // The same for a warp's slice of x.
    DEVICE_MEMBER u32 *own_x() { return (u32 *)shared.slices[warp]; }
    DEVICE_MEMBER void gather_slice(const u64 *from, u32 wanted) {
        constexpr int LOADS = X_SLICE / 2 / 32, BATCH = LOADS < LOOKS ? LOADS : LOOKS;
        from += warp * X_SLICE + 2 * lane;
        // As long as there is nothing, one looks for it.
        patience.until([&] { return look(from).first >> 32 == wanted; });
        for (int begin = 0; begin < LOADS; begin += BATCH) {
            Packets packets[BATCH];
            patience.until([&] {
                bool there = true;
#pragma unroll
                for (int i = 0; i < BATCH; ++i) packets[i] = look(from + 64 * (begin + i));
#pragma unroll
                for (int i = 0; i < BATCH; ++i)
                    there &= packets[i].first >> 32 == wanted && packets[i].second >> 32 == wanted;
                return there;
            });
#pragma unroll
            for (int i = 0; i < BATCH; ++i)
                *(uint2 *)(own_x() + 2 * ((begin + i) * 32 + lane)) =
                    make_uint2((u32)packets[i].first, (u32)packets[i].second);
        }
        sync_warp();
    }

    // The copy engine waits for no loads: a slot is given back by who depends on what was read from it.
    DEVICE_MEMBER void give_back(const uint4 (&read)[STEPS / 2]) {
        // None of its bits is set, but only the caller knows.
        const u32 nothing = (u32)((u64)p.rows >> 32);
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < STEPS / 2; ++i) bits |= read[i].w;
        if (all_lanes((bits & nothing) == 0) && lane == 0) arrive(shared.empty[slot]);
        if (++slot == RING) {
            slot = 0;
            ++turn;
        }
    }

    // A product's weights, in registers before its activations are there.
    template <int UNITS> DEVICE_MEMBER void take(uint4 (&weights)[UNITS][STEPS / 2]) {
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            patience.until([&] { return arrived_here(shared.full[slot], turn); });
            const uint4 *from = (const uint4 *)shared.ring[slot] + warp * (STEPS / 2) * 32 + lane;
#pragma unroll
            for (int i = 0; i < STEPS / 2; ++i) weights[unit][i] = from[i * 32];
            give_back(weights[unit]);
        }
    }

    DEVICE_MEMBER void step(float (&sum)[4], const u32 (&a)[4], const uint4 &b, int odd) {
        if (odd) multiply(sum, a, b.z, b.w);
        else multiply(sum, a, b.x, b.y);
    }
    DEVICE_MEMBER void load(u32 (&a)[4], const u32 *staged, int at) {
        const uint4 words = *(const uint4 *)(staged + (at * 32 + lane) * 4);
        a[0] = words.x;
        a[1] = words.y;
        a[2] = words.z;
        a[3] = words.w;
    }

    // N units of columns, a warp's slice deep.
    template <int N> DEVICE_MEMBER void add_slice(float (&sums)[N][4], const uint4 (&weights)[N][STEPS / 2]) {
#pragma unroll
        for (int at = 0; at < STEPS; ++at) {
            u32 a[4];
            load(a, own_x(), at);
#pragma unroll
            for (int n = 0; n < N; ++n) step(sums[n], a, weights[n][at / 2], at % 2);
        }
    }
    // Where x was, once all lanes have read it.
    template <int N> DEVICE_MEMBER void leave(const float (&sums)[N][4], int first) {
#pragma unroll
        for (int n = 0; n < N; ++n)
            shared.slices[warp][(first + n) * 32 + lane] =
                make_float4(sums[n][0], sums[n][1], sums[n][2], sums[n][3]);
    }
    // Columns pair * 2 and the next of a unit, of rows quad and quad + 8.
    DEVICE_MEMBER float4 unit_total(int unit) { return total(shared.slices, unit * 32 + lane); }
    // NARROW_N units of columns, PARTS slices deep.
    template <int PARTS>
    DEVICE_MEMBER void deep_product(
        const uint4 (&weights)[NARROW_N * PARTS][STEPS / 2], const u32 *staged, float4 (&to)[NARROW_SLOTS]
    ) {
        float sums[NARROW_N][2][4] = {};
#pragma unroll
        for (int at = 0; at < PARTS * STEPS; ++at) {
            u32 a[4];
            load(a, staged, at);
#pragma unroll
            for (int n = 0; n < NARROW_N; ++n)
                step(sums[n][at % 2], a, weights[n * PARTS + at / STEPS][at % STEPS / 2], at % 2);
        }
#pragma unroll
        for (int n = 0; n < NARROW_N; ++n) {
            const float (&one)[4] = sums[n][0], (&two)[4] = sums[n][1];
            send(&to[(n * WARPS + warp) * 4 + pair], owner,
                 make_float4(one[0] + two[0], one[1] + two[1], one[2] + two[2], one[3] + two[3]), shared.narrow_there);
        }
    }
    DEVICE_MEMBER float4 add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
    template <int SLOTS> DEVICE_MEMBER float4 total(const float4 (&parts)[RANKS][SLOTS], int at) {
        float4 sum = parts[0][at];
#pragma unroll
        for (int i = 1; i < RANKS; ++i) sum = add(sum, parts[i][at]);
        return sum;
    }
    DEVICE_MEMBER float sum_of_warp(float value) {
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) value += shuffle_xor(value, mask);
        return value;
    }

    DEVICE_MEMBER float scale(float square) { return rsqrtf(square / HIDDEN + (float)p.eps); }
    // The squares that come with x, of the two rows of `rank`: a part a lane. Asked for before x is multiplied, they are
    // there behind it.
    DEVICE_MEMBER Packets ask_squares(int kind, int rank) {
        return look(p.sums + ((kind * RANKS + rank) * SUMS + lane % SUMS) * 2);
    }
    // What the norm multiplies the two rows by. `squares`: as asked for.
    DEVICE_MEMBER void norm(int kind, int rank, u32 wanted, Packets squares, float (&scales)[2]) {
        patience.until([&] {
            if (squares.first >> 32 == wanted && squares.second >> 32 == wanted) return true;
            squares = ask_squares(kind, rank);
            return false;
        });
        sync_warp();
        scales[0] = scale(sum_of_warp(lane < SUMS ? float_of((u32)squares.first) : 0.0f));
        scales[1] = scale(sum_of_warp(lane < SUMS ? float_of((u32)squares.second) : 0.0f));
    }

    // The same for all rows, for all to read behind a barrier.
    DEVICE_MEMBER void norms(int kind, u32 wanted, Packets squares) {
        float scales[2];
        norm(kind, warp, wanted, squares, scales);
        if (lane > 0) return;
        shared.scales[warp] = scales[0];
        shared.scales[warp + 8] = scales[1];
    }
};
