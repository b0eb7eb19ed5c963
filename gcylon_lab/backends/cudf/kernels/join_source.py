"""CUDA source of the hash table of a join by one key of 64 bits, in which each key of the indexed side stands once.

A slot is the number of a row and 32 bits of its key's hash; the key itself is compared where it lies. Slots follow the
hash, of which a range is spread over all of them: rows that come in order of their hash, as those that were sent by
buckets of it do, are looked up in slots beside each other, which the cache holds. Rows whose key another row has
already are told in `repeats`, as that row and their own number; once these are in order, `mark_repeated` marks the
slots of such keys.
"""

from __future__ import annotations

from .hash_source import CONSTANTS, NUMBERS

THREADS = 256
STEPS = 4
TILE_ROWS = THREADS * STEPS

_TABLE = r"""
#define THREADS 256
#define STEPS 4            // rows a thread
#define TILE 1024
#define EMPTY 0xffffffffffffffffULL
#define SEVERAL 0x80000000u  // of a slot's row: others have its key too
#define MOST_STEPS 1024      // where hashes are spread evenly the longest way is about ten times the rows' logarithm
#define NONE (-1)

// Where hashes from `low` to `high` lie among so many slots.
struct Spread { u64 low, high, factor, slots; int shift; };
#define SPREAD u64 low, u64 high, u64 factor, u64 slot_count, int shift
#define AS_GIVEN {low, high, factor, slot_count, shift}

static __device__ __forceinline__ u64 slot_of(const Spread& spread, u64 hash) {
    return __umul64hi((hash - spread.low) << spread.shift, spread.factor);
}

static __device__ __forceinline__ u64 next_slot(const Spread& spread, u64 slot) {
    return slot + 1 == spread.slots ? 0 : slot + 1;
}

static __device__ __forceinline__ u32 row_in(u64 word) { return (u32)word & ~SEVERAL; }

// How many of some repeats in order belong to rows before this one.
static __device__ __forceinline__ u32 repeats_before(const u64* repeats, u32 count, u32 row) {
    u32 first = 0, last = count;
    while (first < last) {
        u32 middle = (first + last) / 2;
        if ((u32)(repeats[middle] >> 32) < row) first = middle + 1; else last = middle;
    }
    return first;
}

// What `look_up` says of a row: NONE, the row with its key, or, where several have it, -2 less that row.
static __device__ __forceinline__ bool has_several(int found) { return found < NONE; }
static __device__ __forceinline__ u32 first_of(int found) { return found < NONE ? -2 - found : found; }

static __device__ __forceinline__ u32 pairs_of(int found, const u64* repeats, u32 count, int keep) {
    if (!has_several(found)) return found == NONE ? keep : 1;
    u32 row = first_of(found);
    return 1 + repeats_before(repeats, count, row + 1) - repeats_before(repeats, count, row);
}

extern "C" __global__ void __launch_bounds__(THREADS) hash_range(const u64* keys, i64 rows, u64* range) {
    u64 low = EMPTY, high = 0;
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += (i64)gridDim.x * THREADS) {
        u64 hash = mixed(keys[row]);
        low = hash < low ? hash : low;
        high = hash > high ? hash : high;
    }
    for (int step = 16; step; step /= 2) {
        u64 other = __shfl_xor_sync(0xffffffffu, low, step);
        low = other < low ? other : low;
        other = __shfl_xor_sync(0xffffffffu, high, step);
        high = other > high ? other : high;
    }
    if ((threadIdx.x & 31) == 0) {
        atomicMin(&range[0], low);
        atomicMax(&range[1], high);
    }
}

// From a slot on whose word has been seen already.
static __device__ __forceinline__ void put_row(
        const u64* keys, u64 key, u64 word, u64 slot, u64 there, const Spread& spread, u64* slots,
        u32* repeated, u32 most, u64* repeats) {
    for (int step = 0; step < MOST_STEPS; ++step) {
        if (there == EMPTY) there = atomicCAS(&slots[slot], EMPTY, word);
        if (there == EMPTY) return;
        if ((u32)(there >> 32) == (u32)(word >> 32) && keys[(u32)there] == key) {
            u32 at = atomicAdd(repeated, 1);
            if (at < most) repeats[at] = there << 32 | (u32)word;
            return;
        }
        slot = next_slot(spread, slot);
        there = *(volatile u64*)&slots[slot];  // a look costs less than an exchange in vain
    }
    atomicAdd(repeated, most + 1);  // hashes leave a part of their range empty, and crowd in the rest
}

extern "C" __global__ void __launch_bounds__(THREADS) put_in(
        const u64* keys, i64 rows, SPREAD, u64* slots, u32* repeated, u32 most, u64* repeats) {
    Spread spread = AS_GIVEN;
    if (*(volatile u32*)repeated > most) return;  // with too many that are repeated it is not used
    i64 base = (i64)blockIdx.x * TILE + threadIdx.x;
    u64 key[STEPS], word[STEPS], slot[STEPS], there[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {  // so that enough loads are under way at one time
        i64 row = base + step * THREADS;
        key[step] = row < rows ? keys[row] : 0;
    }
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        i64 row = base + step * THREADS;
        u64 hash = mixed(key[step]);
        word[step] = hash << 32 | (u32)row;
        slot[step] = row < rows ? slot_of(spread, hash) : 0;
        there[step] = *(volatile u64*)&slots[slot[step]];
    }
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (base + step * THREADS < rows)
            put_row(keys, key[step], word[step], slot[step], there[step], spread, slots, repeated, most, repeats);
}

extern "C" __global__ void __launch_bounds__(THREADS) mark_repeated(
        const u64* keys, SPREAD, u64* slots, u32 count, const u64* repeats) {
    Spread spread = AS_GIVEN;
    u32 at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= count) return;
    u32 row = (u32)(repeats[at] >> 32);
    if (at && (u32)(repeats[at - 1] >> 32) == row) return;
    u64 hash = mixed(keys[row]), word = hash << 32 | row, slot = slot_of(spread, hash);
    while (slots[slot] != word) slot = next_slot(spread, slot);
    slots[slot] = word | SEVERAL;
}

// Of each row, what was found; of each tile, how many pairs it makes; in totals rows without a partner, rows with
// several, and all pairs.
extern "C" __global__ void __launch_bounds__(THREADS) look_up(
        const u64* keys, const u8* valid, i64 rows, const u64* indexed, SPREAD, const u64* slots,
        u32 count, const u64* repeats, int keep, int* found, i64* pairs, u64* totals) {
    Spread spread = AS_GIVEN;
    __shared__ u32 sums[3];
    if (threadIdx.x < 3) sums[threadIdx.x] = 0;
    __syncthreads();
    i64 base = (i64)blockIdx.x * TILE + threadIdx.x;
    u64 key[STEPS], hash[STEPS], slot[STEPS], word[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        i64 row = base + step * THREADS;
        key[step] = row < rows ? keys[row] : 0;
        hash[step] = mixed(key[step]);
        bool asked = row < rows && hash[step] >= spread.low && hash[step] <= spread.high && (!valid || valid[row]);
        slot[step] = asked ? slot_of(spread, hash[step]) : 0;
        word[step] = asked ? slots[slot[step]] : EMPTY;
    }
    u32 lacking = 0, several = 0, made = 0;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        i64 row = base + step * THREADS;
        if (row >= rows) continue;
        int result = NONE;
        for (u64 there = word[step]; there != EMPTY; there = slots[slot[step]]) {
            if ((u32)(there >> 32) == (u32)hash[step] && indexed[row_in(there)] == key[step]) {
                result = (u32)there & SEVERAL ? -2 - (int)row_in(there) : (int)row_in(there);
                break;
            }
            slot[step] = next_slot(spread, slot[step]);
        }
        found[row] = result;
        lacking += result == NONE;
        several += has_several(result);
        made += pairs_of(result, repeats, count, keep);
    }
    atomicAdd(&sums[0], lacking);
    atomicAdd(&sums[1], several);
    atomicAdd(&sums[2], made);
    __syncthreads();
    if (threadIdx.x < 3 && sums[threadIdx.x]) atomicAdd(&totals[threadIdx.x], (u64)sums[threadIdx.x]);
    if (threadIdx.x == 0) pairs[blockIdx.x] = sums[2];
}

// The pairs of all rows, in the order of rows; ends[tile] is how many there are up to the tile's end.
extern "C" __global__ void __launch_bounds__(THREADS) write_pairs(
        const int* found, i64 rows, const i64* ends, u32 count, const u64* repeats, int keep, int* left, int* right) {
    __shared__ u32 warps[THREADS / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    i64 at = blockIdx.x ? ends[blockIdx.x - 1] : 0;
    for (int step = 0; step < STEPS; ++step) {
        i64 row = (i64)blockIdx.x * TILE + step * THREADS + threadIdx.x;
        int result = row < rows ? found[row] : NONE;
        u32 mine = row < rows ? pairs_of(result, repeats, count, keep) : 0, before = mine;
        for (int by = 1; by < 32; by *= 2) {
            u32 other = __shfl_up_sync(0xffffffffu, before, by);
            if (lane >= by) before += other;
        }
        __syncthreads();  // sums of the step before have been read
        if (lane == 31) warps[warp] = before;
        __syncthreads();
        u32 total = 0;
        before -= mine;
        for (int other = 0; other < THREADS / 32; ++other) {
            if (other < warp) before += warps[other];
            total += warps[other];
        }
        i64 place = at + before;
        if (mine) {
            left[place] = (int)row;
            right[place] = result == NONE ? NONE : (int)first_of(result);
            u32 first = mine > 1 ? repeats_before(repeats, count, first_of(result)) : 0;
            for (u32 i = 1; i < mine; ++i) {
                left[place + i] = (int)row;
                right[place + i] = (int)(u32)repeats[first + i - 1];
            }
        }
        at += total;
    }
}
"""

SOURCE = CONSTANTS + NUMBERS + _TABLE
