// Drawing a code of VOCAB by the WARPS warps of a block: what `Candidates.draw` does by sorting.

#pragma once
#include "device.h"

constexpr int PER_THREAD = VOCAB / THREADS;

struct DrawShared {
    // Used in turns, so that nobody writes what another still reads.
    u32 scratch[2][WARPS];
    u32 keys[THREADS];
    float masses[THREADS];
    int ids[THREADS];
};

struct Draw {
    DrawShared &shared;
    const int thread, warp, lane;
    int turn = 0;

    DEVICE_MEMBER explicit Draw(DrawShared &memory)
        : shared(memory), thread(thread_index()), warp(thread / 32), lane(thread % 32) {}

    // One number of the whole block from one of each warp, in the same order for all.
    template <class Reduce> DEVICE_MEMBER u32 of_block(u32 of_warp, Reduce reduce) {
        u32 *scratch = shared.scratch[turn++ & 1];
        if (lane == 0) scratch[warp] = of_warp;
        sync_workers();
        u32 result = scratch[0];
#pragma unroll
        for (int i = 1; i < WARPS; ++i) result = reduce(result, scratch[i]);
        return result;
    }
    DEVICE_MEMBER u32 max_of_block(u32 value) {
        return of_block(max_lanes(value), [](u32 a, u32 b) { return a > b ? a : b; });
    }
    DEVICE_MEMBER u32 min_of_block(u32 value) {
        return of_block(min_lanes(value), [](u32 a, u32 b) { return a < b ? a : b; });
    }
    DEVICE_MEMBER float sum_of_block(float value) {
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) value += shuffle_xor(value, mask);
        return float_of(of_block(bits_of(value), [](u32 a, u32 b) { return bits_of(float_of(a) + float_of(b)); }));
    }

    // The highest key from which on, upwards, masses sum to at least `wanted` (to more, if STRICT); else `low`.
    template <bool STRICT>
    DEVICE_MEMBER u32 down_to(
        const u32 (&keys)[PER_THREAD], const float (&masses)[PER_THREAD], u32 low, u32 high, float wanted
    ) {
        while (high - low > 1) {
            const u32 middle = low + (high - low) / 2;
            float mass = 0.0f;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i) mass += keys[i] >= middle ? masses[i] : 0.0f;
            mass = sum_of_block(mass);
            if (STRICT ? mass > wanted : mass >= wanted) low = middle;
            else high = middle;
        }
        return low;
    }

    // The lowest key of the `limit` best; of a tie all are taken. `taken`: how many that makes.
    DEVICE_MEMBER u32 best_of(const u32 (&keys)[PER_THREAD], u32 low, u32 high, u32 limit, u32 &taken) {
        taken = VOCAB;
        while (taken > limit && high - low > 1) {
            const u32 step = larger_of((high - low) / 4, 1);
            const u32 one = low + step, two = smaller_of(one + step, high), three = smaller_of(two + step, high);
            u32 counts = 0;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i)
                counts += (keys[i] >= one) | (keys[i] >= two) << 10 | (keys[i] >= three) << 20;
            counts = add_lanes(counts);
            u32 *scratch = shared.scratch[turn++ & 1];
            if (lane == 0) scratch[warp] = counts;
            sync_workers();
            u32 a = 0, b = 0, c = 0;
#pragma unroll
            for (int i = 0; i < WARPS; ++i) {
                a += scratch[i] & 0x3ff;
                b += scratch[i] >> 10 & 0x3ff;
                c += scratch[i] >> 20;
            }
            if (c >= limit) {
                low = three;
                taken = c;
            } else if (b >= limit) {
                low = two;
                high = three;
                taken = b;
            } else if (a >= limit) {
                low = one;
                high = two;
                taken = a;
            } else {
                high = one;
            }
        }
        return low;
    }
    DEVICE_MEMBER u32 larger_of(u32 a, u32 b) { return a > b ? a : b; }
    DEVICE_MEMBER u32 smaller_of(u32 a, u32 b) { return a < b ? a : b; }

    // The code of one row, by inversion of `uniform` over its candidates in descending order, as `Candidates.draw`.
    // `masses`: the logits of the ids i * THREADS + thread; overwritten.
    DEVICE_MEMBER int of(float (&masses)[PER_THREAD], float heat, i64 limit, float top_p, float uniform) {
        u32 keys[PER_THREAD];
        u32 low = 0xffffffffu, best = 0;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) {
            // Whole numbers of the same order.
            const u32 bits = bits_of(masses[i]);
            keys[i] = bits ^ (bits & 0x80000000u ? 0xffffffffu : 0x80000000u);
            low = smaller_of(low, keys[i]);
            best = larger_of(best, keys[i]);
        }
        best = max_of_block(best);
        low = min_of_block(low);
        u32 taken = VOCAB;
        if (limit < VOCAB) low = best_of(keys, low, best + 1, (u32)limit, taken);
        const float top = float_of(best & 0x80000000u ? best ^ 0x80000000u : ~best);
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) masses[i] = keys[i] >= low ? expf((masses[i] - top) * heat) : 0.0f;
        if (taken > THREADS) {
            // More candidates than threads: look for the thresholds by halving.
            float total = 0.0f;
            u32 id = VOCAB - 1;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i) total += masses[i];
            total = sum_of_block(total);
            if (top_p < 1.0f) {
                low = down_to<false>(keys, masses, low, best + 1, fmaxf(top_p * total, 1e-30f));
                total = 0.0f;
#pragma unroll
                for (int i = 0; i < PER_THREAD; ++i) {
                    masses[i] = keys[i] >= low ? masses[i] : 0.0f;
                    total += masses[i];
                }
                total = sum_of_block(total);
            }
            // No key lies between the threshold and the one it separates from the rest.
            const u32 from = down_to<true>(keys, masses, low, best + 1, uniform * total);
            u32 chosen = 0xffffffffu;
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i)
                if (keys[i] >= from) chosen = smaller_of(chosen, keys[i]);
            chosen = min_of_block(chosen);
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i)
                if (keys[i] == chosen) id = smaller_of(id, i * THREADS + thread);
            return min_of_block(id);
        }
        // Few: list them, always in the same order, and let each add up all that come before it.
        u32 count = 0;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) count += keys[i] >= low;
        u32 place = count;
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const u32 before = shuffle_up(place, by);
            if (lane >= by) place += before;
        }
        u32 *scratch = shared.scratch[turn++ & 1];
        if (lane == 31) scratch[warp] = place;
        sync_workers();
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
        sync_workers();
        const bool real = thread < taken;
        const u32 key = real ? shared.keys[thread] : 0;
        float total = 0.0f, down_to_it = 0.0f;
        if (warp * 32 < taken)
            for (u32 i = 0; i < taken; ++i) {
                const float mass = shared.masses[i];
                total += mass;
                if (shared.keys[i] >= key) down_to_it += mass;
            }
        if (top_p < 1.0f) {
            // The candidate that reaches the mass stays; of what weighs more than nothing, bits are in order.
            const bool reaches = real && down_to_it >= fmaxf(top_p * total, 1e-30f);
            total = float_of(min_of_block(reaches ? bits_of(down_to_it) : 0x7f800000u));
        }
        const u32 chosen = max_of_block(real && down_to_it > uniform * total ? key : 0);
        const int id = min_of_block(real && key == chosen ? (u32)shared.ids[thread] : VOCAB - 1);
        return id;
    }
};
