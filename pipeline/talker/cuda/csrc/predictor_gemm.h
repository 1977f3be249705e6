// Products of activations, which come from other blocks as packets, and weights from the ring.

#pragma once
#include "weight_ring.h"

struct PredictorGemm {
    const Params &p;
    Shared &shared;
    const int thread, warp, lane, cluster, rank;
    const int quad, pair; // of the lane: row of a matrix instruction, and pair of columns
    BoundedSpin spin;
    const ClusterOffset owner_offset;
    u32 epoch;
    int slot = 0, round = 0;

    DEVICE_MEMBER PredictorGemm(const Params &params, Shared &memory)
        : p(params), shared(memory), thread(thread_index()), warp(thread / 32), lane(thread % 32),
          cluster(block_index() / RANKS), rank(block_index() % RANKS), quad(lane / 4), pair(lane % 4),
          owner_offset(cluster_offset(&memory, lane / 4)), epoch(*(volatile u32 *)params.epoch + 1) {}

    DEVICE_MEMBER u64 packet(u32 word) { return (u64)epoch << 32 | word; }
    // The block's rows, two of a tile, by `half` tile.
    DEVICE_MEMBER int row_of(int half) { return half * 8 + rank; }
    // Where the words of a lane of a matrix instruction are, among those of activations.
    DEVICE_MEMBER int word_of(int depth_block, int tile, int lane) {
        return (depth_block * TILES + tile) * TILE_WORDS + lane * 4;
    }

    // Waits for COUNT words of epoch `wanted` and copies them to shared memory.
    template <int COUNT> DEVICE_MEMBER void gather(const u64 *from, u32 *to, u32 wanted) {
        constexpr int LOADS = (COUNT / 2 + THREADS - 1) / THREADS;
        Packets packets[LOADS];
        spin.until([&] {
            bool ready = true;
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
                if (i * THREADS + thread < COUNT / 2) packets[i] = load_packets(from + 2 * (i * THREADS + thread));
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
                if (i * THREADS + thread < COUNT / 2)
                    ready &= packets[i].first >> 32 == wanted && packets[i].second >> 32 == wanted;
            return ready;
        });
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
            if (i * THREADS + thread < COUNT / 2)
                *(uint2 *)(to + 2 * (i * THREADS + thread)) = make_uint2((u32)packets[i].first, (u32)packets[i].second);
    }

    // The same for this warp's slice of x.
    DEVICE_MEMBER u32 *warp_slice() { return (u32 *)shared.slices[warp]; }
    template <int AT_ONCE = POLLS> DEVICE_MEMBER void gather_slice(const u64 *from, u32 wanted) {
        constexpr int LOADS = X_SLICE / 2 / 32, BATCH = LOADS < AT_ONCE ? LOADS : AT_ONCE;
        static_assert(LOADS % BATCH == 0);
        from += warp * X_SLICE + 2 * lane;
        // Polls one pair until it arrives, to keep the memory system free.
        spin.until([&] { return load_packets(from).first >> 32 == wanted; });
        for (int begin = 0; begin < LOADS; begin += BATCH) {
            Packets packets[BATCH];
            spin.until([&] {
                bool ready = true;
#pragma unroll
                for (int i = 0; i < BATCH; ++i) packets[i] = load_packets(from + 64 * (begin + i));
#pragma unroll
                for (int i = 0; i < BATCH; ++i)
                    ready &= packets[i].first >> 32 == wanted && packets[i].second >> 32 == wanted;
                return ready;
            });
#pragma unroll
            for (int i = 0; i < BATCH; ++i)
                *(uint2 *)(warp_slice() + 2 * ((begin + i) * 32 + lane)) =
                    make_uint2((u32)packets[i].first, (u32)packets[i].second);
        }
        sync_warp();
    }

    // Gives a ring slot back. The copy engine does not wait for loads in flight, so the release depends on the values
    // that were read.
    DEVICE_MEMBER void release_slot(const uint4 (&read)[STEPS / 2]) {
        // Zero, which only the caller knows: the compiler cannot drop the dependency.
        const u32 nothing = (u32)((u64)p.rows >> 32);
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < STEPS / 2; ++i) bits |= read[i].w;
        if (all_lanes((bits & nothing) == 0) && lane == 0) mbarrier_arrive(shared.empty[slot]);
        if (++slot == RING) {
            slot = 0;
            ++round;
        }
    }

    // Loads a product's weights into registers, before its activations have arrived.
    template <int UNITS> DEVICE_MEMBER void load_weights(uint4 (&weights)[UNITS][STEPS / 2]) {
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            spin.until([&] { return mbarrier_try_wait_cta(shared.full[slot], round); });
            const uint4 *from = (const uint4 *)shared.ring[slot] + warp * (STEPS / 2) * 32 + lane;
#pragma unroll
            for (int i = 0; i < STEPS / 2; ++i) weights[unit][i] = from[i * 32];
            release_slot(weights[unit]);
        }
    }

    DEVICE_MEMBER void mma_step(float (&sum)[4], const u32 (&a)[4], const uint4 &b, int odd) {
        if (odd) mma_16x8x16(sum, a, b.z, b.w);
        else mma_16x8x16(sum, a, b.x, b.y);
    }
    DEVICE_MEMBER void load_rows(u32 (&a)[4], const u32 *staged, int at, int tile) {
        const uint4 words = *(const uint4 *)(staged + word_of(at, tile, lane));
        a[0] = words.x;
        a[1] = words.y;
        a[2] = words.z;
        a[3] = words.w;
    }

    // N units of columns over the depth of a warp's slice.
    template <int N>
    DEVICE_MEMBER void slice_product(float (&sums)[TILES][N][4], const uint4 (&weights)[N][STEPS / 2]) {
#pragma unroll
        for (int at = 0; at < STEPS; ++at)
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                u32 a[4];
                load_rows(a, warp_slice(), at, tile);
#pragma unroll
                for (int n = 0; n < N; ++n) mma_step(sums[tile][n], a, weights[n][at / 2], at % 2);
            }
    }
    // Stores sums in place of x, which all lanes have read.
    template <int N> DEVICE_MEMBER void store_sums(const float (&sums)[TILES][N][4], int first) {
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const float (&sum)[4] = sums[tile][n];
                shared.slices[warp][((first + n) * TILES + tile) * 32 + lane] =
                    make_float4(sum[0], sum[1], sum[2], sum[3]);
            }
    }
    // Columns pair * 2 and pair * 2 + 1 of a unit, of rows quad and quad + 8 of a tile.
    DEVICE_MEMBER float4 sum_unit(int unit, int tile) {
        return sum_parts(shared.slices, (unit * TILES + tile) * 32 + lane);
    }
    // NARROW_N units of columns over the depth of PARTS slices; the sums go to the blocks that own the rows.
    template <int PARTS>
    DEVICE_MEMBER void deep_product(
        const uint4 (&weights)[NARROW_N * PARTS][STEPS / 2], const u32 *staged, float4 (&to)[TILES * NARROW_SLOTS]
    ) {
        float sums[TILES][NARROW_N][2][4] = {};
#pragma unroll
        for (int at = 0; at < PARTS * STEPS; ++at)
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                u32 a[4];
                load_rows(a, staged, at, tile);
#pragma unroll
                for (int n = 0; n < NARROW_N; ++n)
                    mma_step(sums[tile][n][at % 2], a, weights[n * PARTS + at / STEPS][at % STEPS / 2], at % 2);
            }
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int n = 0; n < NARROW_N; ++n) {
                const float (&one)[4] = sums[tile][n][0], (&two)[4] = sums[tile][n][1];
                store_async(&to[((tile * NARROW_N + n) * WARPS + warp) * 4 + pair], owner_offset,
                    make_float4(one[0] + two[0], one[1] + two[1], one[2] + two[2], one[3] + two[3]),
                    shared.narrow_ready);
            }
    }
    DEVICE_MEMBER float4 add_float4(float4 a, float4 b) {
        return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
    template <int SLOTS> DEVICE_MEMBER float4 sum_parts(const float4 (&parts)[RANKS][SLOTS], int at) {
        float4 sum = parts[0][at];
#pragma unroll
        for (int i = 1; i < RANKS; ++i) sum = add_float4(sum, parts[i][at]);
        return sum;
    }
    DEVICE_MEMBER float warp_sum(float value) {
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) value += shuffle_xor(value, mask);
        return value;
    }

    DEVICE_MEMBER float rms_scale(float sum_sq) { return rsqrtf(sum_sq / HIDDEN + (float)p.eps); }
    // Parts of the sums of squares of a rank's rows, two of each tile.
    struct SquareParts {
        Packets of[TILES];
    };
    // Requests the sums of squares of the rows of `rank`, one part a lane: before the product with x, so that they have
    // arrived after it.
    DEVICE_MEMBER SquareParts request_sum_sq(int kind, int rank) {
        SquareParts parts;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
            parts.of[tile] = load_packets(
                p.sum_sq + (((kind * TILES + tile) * RANKS + rank) * SUMS + lane % SUMS) * 2
            );
        return parts;
    }
    // The factors 1 / RMS of the rows of `rank`; `parts`: as requested.
    DEVICE_MEMBER void row_scales(int kind, int rank, u32 wanted, SquareParts parts, float (&scales)[2 * TILES]) {
        spin.until([&] {
            bool ready = true;
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
                ready &= parts.of[tile].first >> 32 == wanted && parts.of[tile].second >> 32 == wanted;
            if (!ready) parts = request_sum_sq(kind, rank);
            return ready;
        });
        sync_warp();
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const Packets &part = parts.of[tile];
            scales[2 * tile] = rms_scale(warp_sum(lane < SUMS ? float_of((u32)part.first) : 0.0f));
            scales[2 * tile + 1] = rms_scale(warp_sum(lane < SUMS ? float_of((u32)part.second) : 0.0f));
        }
    }

    // The same for all rows, to shared memory; to be read after a barrier.
    DEVICE_MEMBER void store_scales(int kind, u32 wanted, SquareParts parts) {
        float scales[2 * TILES];
        row_scales(kind, warp, wanted, parts, scales);
        if (lane > 0) return;
#pragma unroll
        for (int half = 0; half < 2 * TILES; ++half) shared.scales[half * 8 + warp] = scales[half];
    }
};
