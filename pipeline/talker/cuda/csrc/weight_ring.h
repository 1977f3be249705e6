// Streams the weights of a block through a ring of shared memory: one warp loads them in the order of their use, as far
// ahead as the ring allows.

#pragma once
#include "predictor_shape.h"

// Polls a condition; traps after SPINS polls, so that a fault ends the kernel instead of hanging the GPU.
struct BoundedSpin {
    template <class Ready> DEVICE_MEMBER void until(Ready ready) {
        for (int spins = 0; !ready(); ++spins)
            if (spins > SPINS) trap();
    }
};

// Loads one unit after the other, in the order of the products.
struct WeightLoader {
    const Params &p;
    Shared &shared;
    BoundedSpin spin;
    int slot = 0, round = 0;

    DEVICE_MEMBER void load_unit(const u16 *from) {
        // A barrier that has completed no phase counts as in the phase before: the first round does not wait.
        spin.until([&] { return mbarrier_try_wait_cta(shared.empty[slot], round + 1); });
        mbarrier_expect_tx(shared.full[slot], UNIT * 2);
        tma_load(shared.ring[slot], from, UNIT * 2, shared.full[slot]);
        if (++slot == RING) {
            slot = 0;
            ++round;
        }
    }
    DEVICE_MEMBER void run() {
        constexpr int UNITS = LAYERS * LAYER_UNITS;
        const u16 *const layers = p.layers + (size_t)block_index() * UNITS * UNIT;
        const u16 *head = p.heads + (size_t)block_index() * (GROUPS - 1) * HEAD_N * UNIT;
        for (int pass = 0; pass < GROUPS; ++pass) {
            for (int unit = 0; unit < UNITS; ++unit) load_unit(layers + (size_t)unit * UNIT);
            for (int unit = 0; pass > 0 && unit < HEAD_N; ++unit, head += UNIT) load_unit(head);
        }
    }
};
