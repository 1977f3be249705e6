// Sampling of one of VOCAB codes by the WARPS compute warps of a block: the result of `Candidates.draw` without
// sorting.

#pragma once
#include "device.h"

constexpr int PER_THREAD = VOCAB / THREADS;

struct DrawShared {
    // Used alternately: a warp may write one while another still reads the other.
    u32 scratch[2][WARPS];
    u32 keys[THREADS];
    float masses[THREADS];
    int ids[THREADS];
};

struct Draw {
    DrawShared &shared;
    const int thread, warp, lane;
    int phase = 0;

    DEVICE_MEMBER explicit Draw(DrawShared &memory)
        : shared(memory), thread(thread_index()), warp(thread / 32), lane(thread % 32) {}

    // Reduces one value of each warp over the block, in the same order in all threads.
    template <class Reduce> DEVICE_MEMBER u32 block_reduce(u32 warp_value, Reduce reduce) {
        u32 *scratch = shared.scratch[phase++ & 1];
        if (lane == 0) scratch[warp] = warp_value;
        sync_compute_warps();
        u32 result = scratch[0];
#pragma unroll
        for (int i = 1; i < WARPS; ++i) result = reduce(result, scratch[i]);
        return result;
    }
    DEVICE_MEMBER u32 block_max(u32 value) {
        return block_reduce(reduce_max(value), [](u32 a, u32 b) { return a > b ? a : b; });
    }
    DEVICE_MEMBER u32 block_min(u32 value) {
        return block_reduce(reduce_min(value), [](u32 a, u32 b) { return a < b ? a : b; });
    }
    DEVICE_MEMBER float block_sum(float value) {
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) value += shuffle_xor(value, mask);
        return float_of(block_reduce(bits_of(value), [](u32 a, u32 b) { return bits_of(float_of(a) + float_of(b)); }));
    }

    // The highest key such that the masses of keys from it on sum to at least `wanted` (to more, if STRICT); else
    // `low`.
    template <bool STRICT>
    DEVICE_MEMBER u32 threshold(
        const u32 (&keys)[PER_THREAD], const float (&masses)[PER_THREAD], u32 low, u32 high, float wanted
    ) {
        while (high - low > 1) {
            const u32 middle = low + (high - low) / 2;
            float mass = 0.0f;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i) mass += keys[i] >= middle ? masses[i] : 0.0f;
            mass = block_sum(mass);
            if (STRICT ? mass > wanted : mass >= wanted) low = middle;
            else high = middle;
        }
        return low;
    }

    // The lowest key of the `top_k` best candidates, all ties included. `taken`: their number.
    DEVICE_MEMBER u32 top_k_threshold(const u32 (&keys)[PER_THREAD], u32 low, u32 high, u32 top_k, u32 &taken) {
        taken = VOCAB;
        while (taken > top_k && high - low > 1) {
            const u32 step = larger((high - low) / 4, 1);
            const u32 one = low + step, two = smaller(one + step, high), three = smaller(two + step, high);
            u32 counts = 0;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i)
                counts += (keys[i] >= one) | (keys[i] >= two) << 10 | (keys[i] >= three) << 20;
            counts = reduce_add(counts);
            u32 *scratch = shared.scratch[phase++ & 1];
            if (lane == 0) scratch[warp] = counts;
            sync_compute_warps();
            u32 a = 0, b = 0, c = 0;
#pragma unroll
            for (int i = 0; i < WARPS; ++i) {
                a += scratch[i] & 0x3ff;
                b += scratch[i] >> 10 & 0x3ff;
                c += scratch[i] >> 20;
            }
            if (c >= top_k) {
                low = three;
                taken = c;
            } else if (b >= top_k) {
                low = two;
                high = three;
                taken = b;
            } else if (a >= top_k) {
                low = one;
                high = two;
                taken = a;
            } else {
                high = one;
            }
        }
        return low;
    }
    DEVICE_MEMBER u32 larger(u32 a, u32 b) { return a > b ? a : b; }
    DEVICE_MEMBER u32 smaller(u32 a, u32 b) { return a < b ? a : b; }

    // The code of one row, by inversion of `uniform` over its candidates in descending order. `masses`: logits of the
    // ids i * THREADS + thread; overwritten.
    DEVICE_MEMBER int sample(
        float (&masses)[PER_THREAD], float inv_temperature, i64 top_k, float top_p, float uniform
    ) {
        u32 keys[PER_THREAD];
        u32 low = 0xffffffffu, best = 0;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            // Unsigned integers in the order of the floats.
            const u32 bits = bits_of(masses[i]);
            keys[i] = bits ^ (bits & 0x80000000u ? 0xffffffffu : 0x80000000u);
            low = smaller(low, keys[i]);
            best = larger(best, keys[i]);
        }
        best = block_max(best);
        low = block_min(low);
        u32 taken = VOCAB;
        if (top_k < VOCAB) low = top_k_threshold(keys, low, best + 1, (u32)top_k, taken);
        const float top = float_of(best & 0x80000000u ? best ^ 0x80000000u : ~best);
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i)
            masses[i] = keys[i] >= low ? expf((masses[i] - top) * inv_temperature) : 0.0f;
        if (taken > THREADS) {
            // More candidates than threads: find the thresholds by bisection.
            float total = 0.0f;
            u32 id = VOCAB - 1;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i) total += masses[i];
            total = block_sum(total);
            if (top_p < 1.0f) {
                low = threshold<false>(keys, masses, low, best + 1, fmaxf(top_p * total, 1e-30f));
                total = 0.0f;
#pragma unroll
                for (int i = 0; i < PER_THREAD; ++i) {
                    masses[i] = keys[i] >= low ? masses[i] : 0.0f;
                    total += masses[i];
                }
                total = block_sum(total);
            }
            // The chosen candidate is the lowest key from the threshold on.
            const u32 from = threshold<true>(keys, masses, low, best + 1, uniform * total);
            u32 chosen = 0xffffffffu;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i)
                if (keys[i] >= from) chosen = smaller(chosen, keys[i]);
            chosen = block_min(chosen);
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i)
                if (keys[i] == chosen) id = smaller(id, i * THREADS + thread);
            return block_min(id);
        }
        // At most one candidate a thread: list them in a fixed order; each thread sums the masses of the candidates
        // down to its own.
        u32 count = 0;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) count += keys[i] >= low;
        u32 place = count;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const u32 before = shuffle_up(place, by);
            if (lane >= by) place += before;
        }
        u32 *scratch = shared.scratch[phase++ & 1];
        if (lane == 31) scratch[warp] = place;
        sync_compute_warps();
        for (int i = 0; i < warp; ++i) place += scratch[i];
        place -= count;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i)
            if (keys[i] >= low) {
                shared.keys[place] = keys[i];
                shared.masses[place] = masses[i];
                shared.ids[place] = i * THREADS + thread;
                ++place;
            }
        sync_compute_warps();
        const bool real = thread < taken;
        const u32 key = real ? shared.keys[thread] : 0;
        float total = 0.0f, cumulative = 0.0f;
        if (warp * 32 < taken)
            for (u32 i = 0; i < taken; ++i) {
                const float mass = shared.masses[i];
                total += mass;
                if (shared.keys[i] >= key) cumulative += mass;
            }
        if (top_p < 1.0f) {
            // The candidate that reaches top_p stays. Bits of non-negative floats compare like the numbers.
            const bool reaches = real && cumulative >= fmaxf(top_p * total, 1e-30f);
            total = float_of(block_min(reaches ? bits_of(cumulative) : 0x7f800000u));
        }
        const u32 chosen = block_max(real && cumulative > uniform * total ? key : 0);
        const int id = block_min(real && key == chosen ? (u32)shared.ids[thread] : VOCAB - 1);
        return id;
    }
};
