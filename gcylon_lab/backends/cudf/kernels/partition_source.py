"""CUDA source of the stable partition of rows by id, for up to 256 ids.

Rows are taken in tiles. `count_tiles` counts the rows of each id in each tile; their running sum, id after id and tile
after tile, says where each tile's rows of an id go. `move_tiles` finds the rank of each row among its id's rows in
the tile from warp ballots, orders a column's items in shared memory, and writes them from there, so that both reads and
writes are contiguous. `weigh` adds up a length for each id.

Compiled with `SCATTER`, `scatter_tiles` writes the rows of each id to an address of its own, which may be another GPU's
memory. There tiles never hold rows of two pieces, so that the pieces of a part can be scattered one after the other;
`count_piece_tiles` counts such tiles. There rows whose ids are not among those that are asked for stay where they are.

The rows of a tile, `TILE`, are defined where it is compiled: `THREADS` times `STEPS`.
"""

MOST_IDS = 256

SOURCE = r"""
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

#define THREADS 512
#define WARPS 16
#define STEPS 8           // rows a thread; a warp's rows are 256 consecutive ones
#define MOST_IDS 256
#define NOWHERE 0xffff    // the place of a row that stays behind

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

// The id of a row, counted from the lowest one that is asked for; MOST_IDS where it is none of n.
static __device__ __forceinline__ u32 id_of(const u8* ids, int row, int rows, int low, int n) {
    u32 id = row < rows ? (u32)(ids[row] - low) : MOST_IDS;
    return id < n ? id : MOST_IDS;
}

// counts[id * tiles + blockIdx.x] = how many rows have it
static __device__ __forceinline__ void count_rows(
        const u8* ids, int rows, int n, int bits, i64 tiles, i64* counts) {
    __shared__ u32 count[MOST_IDS];
    for (int id = threadIdx.x; id < n; id += THREADS) count[id] = 0;
    __syncthreads();
    int lane = threadIdx.x & 31;
    u32 id[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) id[step] = id_of(ids, step * THREADS + threadIdx.x, rows, 0, n);
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        bool inside = id[step] < MOST_IDS;
        u32 peers = same_id(id[step], bits) & __ballot_sync(0xffffffffu, inside);
        if (inside && lane == __ffs(peers) - 1) atomicAdd(&count[id[step]], __popc(peers));
    }
    __syncthreads();
    for (int id = threadIdx.x; id < n; id += THREADS) counts[id * tiles + blockIdx.x] = count[id];
}

extern "C" __global__ void __launch_bounds__(THREADS) count_tiles(
        const u8* ids, i64 rows, int n, int bits, i64 tiles, i64* counts) {
    i64 base = (i64)blockIdx.x * TILE;
    count_rows(ids + base, rows - base < TILE ? (int)(rows - base) : TILE, n, bits, tiles, counts);
}

// In place of each of n numbers the sum of those before it; by one warp, whose last lane returns the sum of all.
template <typename T>
static __device__ __forceinline__ u32 add_up(T* numbers, int n) {
    int lane = threadIdx.x & 31;
    u32 sums[8], sum = 0;  // of eight numbers a lane
    for (int i = 0; i < 8; ++i) {
        int at = lane * 8 + i;
        sums[i] = sum;
        sum += at < n ? numbers[at] : 0;
    }
    u32 running = sum;
    for (int step = 1; step < 32; step *= 2) {
        u32 left = __shfl_up_sync(0xffffffffu, running, step);
        if (lane >= step) running += left;
    }
    for (int i = 0; i < 8; ++i)
        if (lane * 8 + i < n) numbers[lane * 8 + i] = running - sum + sums[i];
    return running;
}

// The rank of each row among the rows of its id in the tile: place, once the id's start is added by `put_in_order`.
// For each id, seen is how many rows of it stand in earlier warps, start where it begins in the tile. Returns how many
// rows of id threadIdx.x the tile has.
static __device__ __forceinline__ u32 rank_rows(
        const u8* ids, int count, int first, int low, int n, int bits,
        u32* id, u16* place, u16 (*seen)[MOST_IDS], u16* start) {
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) id[step] = id_of(ids, first + 32 * step, count, low, n);
    for (int i = lane; i < n; i += 32) seen[warp][i] = 0;
    __syncwarp();
    // Within the warp, whose rows come in order.
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        bool inside = id[step] < MOST_IDS;
        u32 peers = same_id(id[step], bits) & __ballot_sync(0xffffffffu, inside);
        u16 before = inside ? seen[warp][id[step]] : 0;
        place[step] = inside ? before + __popc(peers & ((1u << lane) - 1)) : NOWHERE;
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
    if (warp == 0) add_up(start, n);  // where each id begins in the tile
    __syncthreads();
    return total;
}

// Place of each row in id order, and which id stands at each place. The room may be used after it.
static __device__ __forceinline__ void put_in_order(
        const u32* id, u16* place, const u16 (*seen)[MOST_IDS], const u16* start, u8* id_at) {
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (id[step] < MOST_IDS) {
            place[step] += seen[threadIdx.x >> 5][id[step]] + start[id[step]];
            id_at[place[step]] = id[step];
        }
    __syncthreads();
}

// Items of one column: from registers in id order into shared memory, from there to their places. An item goes to its
// id's address in `to`, as the item of that number among the `count` of the tile that go anywhere; writing begins with
// item `turn`.
template <typename T>
static __device__ __forceinline__ void move_items(
        const T* items, const u64* to, T* room, const u16* place, const u8* id_at, int count, int turn) {
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (place[step] != NOWHERE) room[place[step]] = items[step];
    __syncthreads();
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int at = step * THREADS + threadIdx.x;
        if (at < count) {
            at += turn;
            if (at >= count) at -= count;
            ((T*)to[id_at[at]])[at] = room[at];
        }
    }
    __syncthreads();
}

template <typename T>
static __device__ __forceinline__ void move_column(
        const T* source, const u64* to, T* room, const u16* place, const u8* id_at,
        i64 base, int count, int first, int turn) {
    T items[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int row = first + 32 * step;
        if (place[step] != NOWHERE) items[step] = source ? source[base + row] : (T)(base + row);
    }
    move_items(items, to, room, place, id_at, count, turn);
}

// The same for items of 16 bytes, of which the room holds half a tile at a time.
static __device__ __forceinline__ void move_wide(
        const ulonglong2* source, const u64* to, ulonglong2* room, const u16* place, const u8* id_at,
        i64 base, int count, int first) {
    for (int half = 0; half < 2; ++half) {
        #pragma unroll
        for (int step = 0; step < STEPS; ++step)
            if (place[step] != NOWHERE && place[step] / (TILE / 2) == half)
                room[place[step] % (TILE / 2)] = source[base + first + 32 * step];
        __syncthreads();
        for (int i = threadIdx.x; i < TILE / 2 && half * (TILE / 2) + i < count; i += THREADS) {
            int at = half * (TILE / 2) + i;
            ((ulonglong2*)to[id_at[at]])[at] = room[i];
        }
        __syncthreads();
    }
}

template <bool WIDE>
static __device__ __forceinline__ void move_any(
        int width, u64 source, const u64* to, u64* room, const u16* place, const u8* id_at,
        i64 base, int count, int first, int turn) {
    switch (width) {
        case 1: move_column((const u8*)source, to, (u8*)room, place, id_at, base, count, first, turn); break;
        case 2: move_column((const u16*)source, to, (u16*)room, place, id_at, base, count, first, turn); break;
        case 4: move_column((const u32*)source, to, (u32*)room, place, id_at, base, count, first, turn); break;
        case 16:
            if (WIDE) move_wide((const ulonglong2*)source, to, (ulonglong2*)room, place, id_at, base, count, first);
            break;
        default: move_column((const u64*)source, to, room, place, id_at, base, count, first, turn);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) move_tiles(
        const u8* ids, i64 rows, int n, int bits, i64 tiles, const i64* ends,
        const u64* sources, const u64* targets, const u64* widths, int columns) {
    __shared__ __align__(16) u64 room[TILE];
    __shared__ u8 id_at[TILE];
    __shared__ u64 to[MOST_IDS];
    u16 (*seen)[MOST_IDS] = (u16 (*)[MOST_IDS])room;  // before the room is needed for items
    u16* start = (u16*)room + WARPS * MOST_IDS;
    i64 base = (i64)blockIdx.x * TILE;
    int count = rows - base < TILE ? (int)(rows - base) : TILE;
    int first = (threadIdx.x >> 5) * 32 * STEPS + (threadIdx.x & 31);
    u32 id[STEPS];
    u16 place[STEPS];
    u32 total = rank_rows(ids + base, count, first, 0, n, bits, id, place, seen, start);
    i64 shift = 0;
    if (threadIdx.x < n) shift = ends[threadIdx.x * tiles + blockIdx.x] - total - start[threadIdx.x];
    put_in_order(id, place, seen, start, id_at);
    for (int column = 0; column < columns; ++column) {
        if (threadIdx.x < n) to[threadIdx.x] = targets[column] + shift * widths[column];
        move_any<false>((int)widths[column], sources[column], to, room, place, id_at, base, count, first, 0);
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

// *most = the largest ends[row + 1] - ends[row]
#define LONGEST(NAME, T) extern "C" __global__ void __launch_bounds__(THREADS) NAME( \
        const T* ends, i64 rows, u64* most) { \
    u64 mine = 0; \
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < rows; row += (i64)gridDim.x * THREADS) { \
        u64 length = (u64)(ends[row + 1] - ends[row]); \
        if (length > mine) mine = length; \
    } \
    if (mine > *(volatile u64*)most) atomicMax(most, mine); \
}
LONGEST(longest_int32, int)
LONGEST(longest_int64, i64)
"""

SCATTER = r"""
// A tile: its piece, its first row in the part and in the piece, and how many it has.
struct Tile { int piece; i64 row, base; int rows; };

static __device__ __forceinline__ Tile tile_of(
        const i64* row_edges, const i64* tile_edges, int pieces, i64 number) {
    int piece = 0, last = pieces - 1;  // the last piece that begins with it or before
    while (piece < last) {
        int middle = (piece + last + 1) / 2;
        if (tile_edges[middle] <= number) piece = middle; else last = middle - 1;
    }
    i64 base = (number - tile_edges[piece]) * TILE, row = row_edges[piece] + base;
    i64 left = row_edges[piece + 1] - row;
    return {piece, row, base, left < TILE ? (int)left : TILE};
}

extern "C" __global__ void __launch_bounds__(THREADS) count_piece_tiles(
        const u8* ids, const i64* row_edges, const i64* tile_edges, int pieces, int n, int bits, i64 tiles,
        i64* counts) {
    Tile tile = tile_of(row_edges, tile_edges, pieces, blockIdx.x);
    count_rows(ids + tile.row, tile.rows, n, bits, tiles, counts);
}

// Tile blockIdx.x of a piece, the first of which is `first_tile` of the part. targets[column * n + id] is where the
// part's first row of an id belongs.
extern "C" __global__ void __launch_bounds__(THREADS, 2) scatter_tiles(
        const u8* ids, i64 rows, int low, int n, int bits, i64 first_tile, i64 tiles, const i64* ends,
        const u64* targets, u64 source0, u64 source1, u64 source2, u64 source3, u64 source4, u64 source5,
        u64 source6, u64 source7, u64 widths, int columns) {
    __shared__ __align__(16) u64 room[TILE];
    __shared__ u8 id_at[TILE];
    __shared__ u64 to[MOST_IDS];
    __shared__ u64 sources[8];
    __shared__ int going;
    u16 (*seen)[MOST_IDS] = (u16 (*)[MOST_IDS])room;
    u16* start = (u16*)room + WARPS * MOST_IDS;
    i64 base = (i64)blockIdx.x * TILE, tile = first_tile + blockIdx.x;
    int count = rows - base < TILE ? (int)(rows - base) : TILE;
    int first = (threadIdx.x >> 5) * 32 * STEPS + (threadIdx.x & 31);
    u32 id[STEPS];
    u16 place[STEPS];
    u32 total = rank_rows(ids + base, count, first, low, n, bits, id, place, seen, start);
    i64 shift = 0;
    if (threadIdx.x == n - 1) going = start[n - 1] + total;
    if (threadIdx.x < n) {
        i64 end = (low + threadIdx.x) * tiles;  // of all ids, whichever are asked for
        shift = ends[end + tile] - (end ? ends[end - 1] : 0) - total - start[threadIdx.x];
    }
    if (threadIdx.x == 0) {  // by value, since a copy for each piece would cost more than it carries
        sources[0] = source0; sources[1] = source1; sources[2] = source2; sources[3] = source3;
        sources[4] = source4; sources[5] = source5; sources[6] = source6; sources[7] = source7;
    }
    int turn = start[tile % n];  // tiles begin with different ids, so that not all write to the same GPU at a time
    put_in_order(id, place, seen, start, id_at);
    for (int column = 0; column < columns; ++column) {
        int width = widths >> (8 * column) & 255;
        if (threadIdx.x < n) to[threadIdx.x] = targets[column * n + threadIdx.x] + shift * width;
        move_any<true>(width, sources[column], to, room, place, id_at, base, going, first, turn);
    }
}
"""
