// Weights of a block, through a ring of shared memory: one warp has them copied in the order in which they are multiplied,
// as far ahead as there is room.

#pragma once
#include "predictor_shape.h"

// Waiting, with an end to it.
struct Patience {
    template <class Ready> DEVICE_MEMBER void until(Ready ready) {
        for (int spins = 0; !ready(); ++spins)
            if (spins > SPINS) give_up();
    }
};

// One unit after the other, as they are multiplied.
struct Fetcher {
    const Params &p;
    Shared &shared;
    Patience patience;
    int slot = 0, turn = 0;

    DEVICE_MEMBER void fetch(const u16 *from) {
        // The first time round all slots are empty.
        patience.until([&] { return arrived_here(shared.empty[slot], turn + 1); });
        expect(shared.full[slot], UNIT * 2);
        copy_async(shared.ring[slot], from, UNIT * 2, shared.full[slot]);
        if (++slot == RING) {
            slot = 0;
            ++turn;
        }
    }
    DEVICE_MEMBER void run() {
        constexpr int UNITS = LAYERS * LAYER_UNITS;
        const u16 *const layers = p.layers + (size_t)block_index() * UNITS * UNIT;
        const u16 *head = p.heads + (size_t)block_index() * (GROUPS - 1) * HEAD_N * UNIT;
        for (int pass = 0; pass < GROUPS; ++pass) {
            for (int unit = 0; unit < UNITS; ++unit) fetch(layers + (size_t)unit * UNIT);
            for (int unit = 0; pass > 0 && unit < HEAD_N; ++unit, head += UNIT) fetch(head);
        }
    }
};
