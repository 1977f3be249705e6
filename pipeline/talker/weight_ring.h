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
        patience.until([&] { return arrived(shared.empty[slot], turn + 1); });
        expect(shared.full[slot], UNIT * 2);
        copy_async(shared.ring[slot], from, UNIT * 2, shared.full[slot]);
        if (++slot == RING) {
            slot = 0;
            ++turn;
        }
    }
    DEVICE_MEMBER void fetch(const u16 *matrix, int block, int count) {
        for (int unit = 0; unit < count; ++unit) fetch(matrix + ((size_t)block * count + unit) * UNIT);
    }
    DEVICE_MEMBER void run() {
        const int cluster = block_index() / RANKS, rank = block_index() % RANKS;
        for (int pass = 0; pass < GROUPS; ++pass) {
            for (int layer = 0; layer < LAYERS; ++layer) {
                const int own = (layer * CLUSTERS + cluster) * RANKS + rank;
                fetch(p.qkv, own, QKV_N);
                fetch(p.out, own, OUT_UNITS);
                fetch(p.gate_up, own, GATE_N);
                fetch(p.down, own, DOWN_UNITS);
            }
            if (pass > 0) fetch(p.heads, ((pass - 1) * CLUSTERS + cluster) * RANKS + rank, HEAD_N);
        }
    }
};
