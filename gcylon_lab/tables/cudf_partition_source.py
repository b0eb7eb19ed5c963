"""CUDA source of the stable partition of rows by id, for up to 256 ids.

Rows are taken in tiles. `count_tiles` counts the rows of each id in each tile; their running sum, id after id and tile
after tile, says where each tile's rows of an id go. `move_tiles` finds the rank of each row among its id's rows in
the tile from warp ballots, orders a column's items in shared memory, and writes them from there, so that both reads and
writes are contiguous. `weigh` adds up a length for each id.
"""

TILE_ROWS = 4096
MOST_IDS = 256

SOURCE = r"""
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

#define TILE 4096
#define THREADS 512
#define WARPS 16
#define STEPS 8           // rows a thread; a warp's rows are 256 consecutive ones
#define MOST_IDS 256

// The lanes of the warp that hold the same id; bits is how many bits ids have.
static __device__ __forceinline__ u32 same_id(u32 id, int bits) {
    u32 peers = 0xffffffffu;
    for (int bit = 0; bit < bits; ++bit) {
        bool set = id >> bit & 1;
        u32 votes = __ballot_sync(0xffffffffu, set);
        peers &= set ? votes : ~votes;
    }
    return peers;
}

extern "C" __global__ void __launch_bounds__(THREADS) count_tiles(
        const u8* ids, i64 rows, int n, int bits, i64 tiles, i64* counts) {
    __shared__ u32 count[MOST_IDS];
    for (int id = threadIdx.x; id < n; id += THREADS) count[id] = 0;
    __syncthreads();
    i64 base = (i64)blockIdx.x * TILE;
    int lane = threadIdx.x & 31;
    u32 id[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        i64 row = base + step * THREADS + threadIdx.x;
        id[step] = row < rows ? ids[row] : MOST_IDS;
    }
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        bool inside = id[step] < MOST_IDS;
        u32 peers = same_id(id[step], bits) & __ballot_sync(0xffffffffu, inside);
        if (inside && lane == __ffs(peers) - 1) atomicAdd(&count[id[step]], __popc(peers));
    }
    __syncthreads();
    for (int id = threadIdx.x; id < n; id += THREADS) counts[id * tiles + blockIdx.x] = count[id];
}

// Items of one column: in row order into registers, in id order into shared memory, from there to their places.
template <typename T>
static __device__ __forceinline__ void move_column(
        const T* source, T* target, T* room, const u16* place, const u8* id_at, const i64* shift,
        i64 base, int count, int first) {
    T items[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int row = first + 32 * step;
        if (row < count) items[step] = source ? source[base + row] : (T)(base + row);
    }
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (first + 32 * step < count) room[place[step]] = items[step];
    __syncthreads();
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int at = step * THREADS + threadIdx.x;
        if (at < count) target[at + shift[id_at[at]]] = room[at];
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) move_tiles(
        const u8* ids, i64 rows, int n, int bits, i64 tiles, const i64* ends,
        const u64* sources, const u64* targets, const u64* widths, int columns) {
    __shared__ u64 room[TILE];
    __shared__ u8 id_at[TILE];
    __shared__ i64 shift[MOST_IDS];
    u16 (*seen)[MOST_IDS] = (u16 (*)[MOST_IDS])room;  // before the room is needed for items
    u16* start = (u16*)room + WARPS * MOST_IDS;
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    i64 base = (i64)blockIdx.x * TILE;
    int count = rows - base < TILE ? (int)(rows - base) : TILE;
    int first = warp * 32 * STEPS + lane;

    u32 id[STEPS];
    u16 place[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        id[step] = first + 32 * step < count ? ids[base + first + 32 * step] : MOST_IDS;
    for (int i = lane; i < n; i += 32) seen[warp][i] = 0;
    __syncwarp();
    // The rank of each row among the rows of its id in the warp, which come in order.
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        bool inside = id[step] < MOST_IDS;
        u32 peers = same_id(id[step], bits) & __ballot_sync(0xffffffffu, inside);
        u16 before = inside ? seen[warp][id[step]] : 0;
        place[step] = before + __popc(peers & ((1u << lane) - 1));
        __syncwarp();
        if (inside && lane == __ffs(peers) - 1) seen[warp][id[step]] = before + __popc(peers);
        __syncwarp();
    }
    __syncthreads();
    // The same over the warps: for each id, how many rows of it stand in earlier warps, and how many in the tile.
    u32 total = 0;
    if (threadIdx.x < n) {
        for (int w = 0; w < WARPS; ++w) {
            u16 here = seen[w][threadIdx.x];
            seen[w][threadIdx.x] = total;
            total += here;
        }
        start[threadIdx.x] = total;
    }
    __syncthreads();
    // Where each id begins in the tile: the first warp adds up, eight ids a lane.
    if (warp == 0) {
        u32 sums[8], sum = 0;
        for (int i = 0; i < 8; ++i) {
            int at = lane * 8 + i;
            sums[i] = sum;
            sum += at < n ? start[at] : 0;
        }
        u32 running = sum;
        for (int step = 1; step < 32; step *= 2) {
            u32 left = __shfl_up_sync(0xffffffffu, running, step);
            if (lane >= step) running += left;
        }
        for (int i = 0; i < 8; ++i)
            if (lane * 8 + i < n) start[lane * 8 + i] = running - sum + sums[i];
    }
    __syncthreads();
    if (threadIdx.x < n)
        shift[threadIdx.x] = ends[threadIdx.x * tiles + blockIdx.x] - total - start[threadIdx.x];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (id[step] < MOST_IDS) {
            place[step] += seen[warp][id[step]] + start[id[step]];
            id_at[place[step]] = id[step];
        }
    __syncthreads();

    for (int column = 0; column < columns; ++column) {
        u64 source = sources[column], target = targets[column];
        switch ((int)widths[column]) {
            case 1: move_column((const u8*)source, (u8*)target, (u8*)room, place, id_at, shift, base, count, first);
                    break;
            case 2: move_column((const u16*)source, (u16*)target, (u16*)room, place, id_at, shift, base, count, first);
                    break;
            case 4: move_column((const u32*)source, (u32*)target, (u32*)room, place, id_at, shift, base, count, first);
                    break;
            default: move_column((const u64*)source, (u64*)target, room, place, id_at, shift, base, count, first);
        }
    }
}

// sums[id] += ends[row + 1] - ends[row]
#define WEIGH(NAME, T) extern "C" __global__ void __launch_bounds__(THREADS) NAME( \
        const u8* ids, const T* ends, i64 rows, int n, u64* sums) { \
    __shared__ u64 sum[MOST_IDS]; \
    for (int id = threadIdx.x; id < n; id += THREADS) sum[id] = 0; \
    __syncthreads(); \
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += (i64)gridDim.x * THREADS) \
        atomicAdd(&sum[ids[row]], (u64)(ends[row + 1] - ends[row])); \
    __syncthreads(); \
    for (int id = threadIdx.x; id < n; id += THREADS) if (sum[id]) atomicAdd(&sums[id], sum[id]); \
}
WEIGH(weigh_int32, int)
WEIGH(weigh_int64, i64)
"""
