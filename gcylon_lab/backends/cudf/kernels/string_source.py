"""CUDA source that writes all columns of some pieces to where they belong, beside `SCATTER` of `cudf_partition_source`.

`scatter_planes` does it for arrays by row; of a width of 0 are those that say whether a row holds a value, which is
read from a mask of bits and written as a byte. `weigh_tiles` adds up, for each tile and id, the bytes of a text
column's values; their running sum says where those of a tile go. `scatter_texts` orders the lengths of a tile's values
by id, adds them up, writes offsets, and then the characters, of which a thread writes the 16 bytes of one line of
memory. Offsets are of 32 bits, on both sides. The blocks of one row of the grid do the same text.
"""

TEXTS = r"""
static __device__ __forceinline__ void move_valid(
        u64 mask, const u64* to, u8* room, const u16* place, const u8* id_at,
        i64 base, int count, int first, int turn) {
    u8 items[STEPS];
    u32 bit = (u32)(mask & 31) + (u32)(base + first);
    const u32* words = (const u32*)((mask >> 5) << 2) + (bit >> 5);
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)  // 32 rows on is a word on
        if (place[step] != NOWHERE) items[step] = mask ? words[step] >> (bit & 31) & 1 : 1;
    move_items(items, to, room, place, id_at, count, turn);
}

// Tiles from `first_tile` of the part on. For each piece `sources` has the address of each plane, of a mask that of its
// first bit, or 0 where there is none; targets[plane * n + id] is where the part's first row of an id belongs.
extern "C" __global__ void __launch_bounds__(THREADS, 2) scatter_planes(
        const u8* ids, const i64* row_edges, const i64* tile_edges, int pieces, int n, int bits, i64 first_tile,
        i64 tiles, const i64* ends, const u64* targets, const u64* sources, const u64* widths, int planes) {
    __shared__ __align__(16) u64 room[TILE];
    __shared__ u8 id_at[TILE];
    __shared__ u64 to[MOST_IDS];
    __shared__ Tile tile;
    u16 (*seen)[MOST_IDS] = (u16 (*)[MOST_IDS])room;
    u16* start = (u16*)room + WARPS * MOST_IDS;
    i64 number = first_tile + blockIdx.x;
    if (threadIdx.x == 0) tile = tile_of(row_edges, tile_edges, pieces, number);
    __syncthreads();
    int first = (threadIdx.x >> 5) * 32 * STEPS + (threadIdx.x & 31);
    u32 id[STEPS];
    u16 place[STEPS];
    u32 total = rank_rows(ids + tile.row, tile.rows, first, 0, n, bits, id, place, seen, start);
    i64 shift = 0;
    if (threadIdx.x < n) {
        i64 end = threadIdx.x * tiles;
        shift = ends[end + number] - (end ? ends[end - 1] : 0) - total - start[threadIdx.x];
    }
    int turn = start[number % n];  // tiles begin with different ids, so that not all write to the same GPU at a time
    put_in_order(id, place, seen, start, id_at);
    for (int plane = 0; plane < planes; ++plane) {
        int width = (int)widths[plane];
        u64 source = sources[(i64)tile.piece * planes + plane];
        if (threadIdx.x < n) to[threadIdx.x] = targets[plane * n + threadIdx.x] + shift * (width ? width : 1);
        if (width) move_any<true>(width, source, to, room, place, id_at, tile.base, tile.rows, first, turn);
        else move_valid(source, to, (u8*)room, place, id_at, tile.base, tile.rows, first, turn);
    }
}

// Of each piece and text `sources` has the address of the first row's offset, 0 where all are null, and that of the
// characters.
static __device__ __forceinline__ const u64* text_of(const u64* sources, const Tile& tile) {
    return sources + 2 * ((i64)tile.piece * gridDim.y + blockIdx.y);
}

extern "C" __global__ void __launch_bounds__(THREADS) weigh_tiles(
        const u8* ids, const i64* row_edges, const i64* tile_edges, int pieces, int n, int bits, i64 tiles,
        const u64* sources, i64* sums) {
    __shared__ u32 sum[MOST_IDS];
    for (int id = threadIdx.x; id < n; id += THREADS) sum[id] = 0;
    __syncthreads();
    Tile tile = tile_of(row_edges, tile_edges, pieces, blockIdx.x);
    const int* ends = (const int*)text_of(sources, tile)[0];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int row = step * THREADS + threadIdx.x;
        u32 id = id_of(ids + tile.row, row, tile.rows, 0, n);
        bool inside = id < MOST_IDS;
        u32 bytes = inside && ends ? (u32)(ends[tile.base + row + 1] - ends[tile.base + row]) : 0;
        u32 peers = same_id(id, bits) & __ballot_sync(0xffffffffu, inside);
        if (inside) {
#if __CUDA_ARCH__ >= 800
            u32 all = __reduce_add_sync(peers, bytes);
            if ((threadIdx.x & 31) == __ffs(peers) - 1) atomicAdd(&sum[id], all);
#else
            atomicAdd(&sum[id], bytes);
#endif
        }
    }
    __syncthreads();
    i64 flat = (i64)blockIdx.y * n * tiles + blockIdx.x;
    for (int id = threadIdx.x; id < n; id += THREADS) sums[flat + id * tiles] = sum[id];
}

// The last of some numbers in order, from `low` on and up to `high`, that is not above a value; the first one is not.
template <typename T>
static __device__ __forceinline__ u32 last_up_to(const T* numbers, u32 low, u32 high, u32 value) {
    while (low < high) {
        u32 middle = (low + high + 1) / 2;
        if (numbers[middle] <= value) low = middle; else high = middle - 1;
    }
    return low;
}

// Of a text column: where the part's first offset and its first byte for an id belong, and that offset's value.
extern "C" __global__ void __launch_bounds__(THREADS, 2) scatter_texts(
        const u8* ids, const i64* row_edges, const i64* tile_edges, int pieces, int n, int bits, i64 first_tile,
        i64 tiles, const i64* row_ends, const i64* byte_ends, const u64* sources, const u64* offset_targets,
        const u64* byte_targets, const i64* values) {
    __shared__ u32 room[2 * TILE + 1];
    __shared__ u8 id_at[TILE];
    __shared__ u16 start[MOST_IDS];
    __shared__ u64 to_offsets[MOST_IDS], to_bytes[MOST_IDS];
    __shared__ i64 value[MOST_IDS];
    __shared__ u32 lines[MOST_IDS];  // of 16 bytes, before those of an id
    __shared__ u32 warps[WARPS], all_lines;
    u16 (*seen)[MOST_IDS] = (u16 (*)[MOST_IDS])room;
    u32* before = room;             // bytes of values that stand before one, in the order of ids; first their lengths
    u32* from = room + TILE + 1;    // where a value begins, after the tile's first byte
    i64 number = first_tile + blockIdx.x;
    Tile tile = tile_of(row_edges, tile_edges, pieces, number);
    const u64* source_of = text_of(sources, tile);
    const int* ends = (const int*)source_of[0];
    int count = tile.rows, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = warp * 32 * STEPS + lane;
    u32 id[STEPS];
    u16 place[STEPS];
    u32 total = rank_rows(ids + tile.row, count, first, 0, n, bits, id, place, seen, start);
    put_in_order(id, place, seen, start, id_at);
    int tile_begin = ends ? ends[tile.base] : 0;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (place[step] != NOWHERE) {
            i64 row = tile.base + first + 32 * step;
            int begin = ends ? ends[row] : 0;
            before[place[step]] = ends ? (u32)(ends[row + 1] - begin) : 0;
            from[place[step]] = (u32)(begin - tile_begin);
        }
    __syncthreads();
    // All rows of a tile have an id. Each thread adds up eight lengths.
    u32 lengths[STEPS], mine = 0;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int at = threadIdx.x * STEPS + step;
        lengths[step] = at < count ? before[at] : 0;
        mine += lengths[step];
    }
    u32 running = mine;
    for (int by = 1; by < 32; by *= 2) {
        u32 left = __shfl_up_sync(0xffffffffu, running, by);
        if (lane >= by) running += left;
    }
    if (lane == 31) warps[warp] = running;
    __syncthreads();
    running -= mine;
    for (int other = 0; other < warp; ++other) running += warps[other];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int at = threadIdx.x * STEPS + step;
        if (at < count) before[at] = running;
        running += lengths[step];
        if (at == count - 1) before[count] = running;
    }
    __syncthreads();
    if (threadIdx.x < n) {
        int text = blockIdx.y * n + threadIdx.x;
        i64 end = threadIdx.x * tiles, byte_end = text * tiles;
        u32 begin = before[start[threadIdx.x]], stop = before[start[threadIdx.x] + total];
        i64 row_shift = row_ends[end + number] - (end ? row_ends[end - 1] : 0) - total - start[threadIdx.x];
        i64 byte_shift = byte_ends[byte_end + number] - (byte_end ? byte_ends[byte_end - 1] : 0) - stop;
        u64 target = byte_targets[text] + byte_shift;
        to_offsets[threadIdx.x] = offset_targets[text] + 4 * row_shift;
        to_bytes[threadIdx.x] = target;
        value[threadIdx.x] = values[text] + byte_shift;
        lines[threadIdx.x] = stop > begin ? (u32)(((target + stop + 15) >> 4) - ((target + begin) >> 4)) : 0;
    }
    __syncthreads();
    if (warp == 0) {
        u32 sum = add_up(lines, n);
        if (lane == 31) all_lines = sum;
    }
    for (int at = threadIdx.x; at < count; at += THREADS)
        ((int*)to_offsets[id_at[at]])[at] = (int)(value[id_at[at]] + before[at]);
    __syncthreads();
    const u8* bytes = (const u8*)source_of[1] + tile_begin;
    for (u32 line = threadIdx.x; line < all_lines; line += THREADS) {
        u32 to = last_up_to(lines, 0, n - 1, line), next = to + 1 < n ? start[to + 1] : count;
        u64 target = to_bytes[to];
        i64 begin = before[start[to]], stop = before[next];
        i64 line_begin = (i64)((((target + begin) >> 4) + (line - lines[to])) << 4) - (i64)target;
        begin = max(begin, line_begin);
        stop = min(stop, line_begin + 16);
        u32 at = last_up_to(before, start[to], next - 1, (u32)begin), value_stop = before[at + 1];
        const u8* source = bytes + ((i64)from[at] - before[at]);
        u32 words[4] = {0, 0, 0, 0};
        bool whole = stop - begin == 16;
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            u32 byte_at = (u32)begin + i;
            if (byte_at < stop) {
                while (byte_at >= value_stop) {
                    value_stop = before[++at + 1];
                    source = bytes + ((i64)from[at] - before[at]);
                }
                u32 byte = source[byte_at];
                if (whole) words[i / 4] |= byte << (8 * (i % 4)); else ((u8*)target)[byte_at] = (u8)byte;
            }
        }
        if (whole) *(uint4*)(target + begin) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// Bytes that say whether rows hold values as bits, to the end of a mask; of each, how many rows lack one. `where` has
// the addresses of the bytes and of the mask of each row of the grid.
extern "C" __global__ void __launch_bounds__(THREADS) pack_valid(i64 rows, const u64* where, u64* nulls) {
    __shared__ u32 lacking;
    if (threadIdx.x == 0) lacking = 0;
    __syncthreads();
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    bool holds = row < rows && ((const u8*)where[2 * blockIdx.y])[row];
    u32 word = __ballot_sync(0xffffffffu, holds), lacks = __ballot_sync(0xffffffffu, row < rows && !holds);
    if ((threadIdx.x & 31) == 0) {
        ((u32*)where[2 * blockIdx.y + 1])[row >> 5] = word;
        if (lacks) atomicAdd(&lacking, __popc(lacks));
    }
    __syncthreads();
    if (threadIdx.x == 0 && lacking) atomicAdd(&nulls[blockIdx.y], (u64)lacking);
}

// Where the last value of each text ends.
extern "C" __global__ void end_texts(
        u64 at0, u64 at1, u64 at2, u64 at3, u64 at4, u64 at5, u64 at6, u64 at7,
        int end0, int end1, int end2, int end3, int end4, int end5, int end6, int end7) {
    u64 at[8] = {at0, at1, at2, at3, at4, at5, at6, at7};
    int end[8] = {end0, end1, end2, end3, end4, end5, end6, end7};
    for (int text = 0; text < 8; ++text) if (at[text]) *(int*)at[text] = end[text];
}
"""
