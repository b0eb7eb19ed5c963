"""CUDA source that writes texts to where they belong, beside `SCATTER` of `cudf_partition_source`.

`weigh_tiles` adds up, for each tile and id, the bytes of a text column's values; their running sum says where those of
a tile go. `scatter_texts` orders the lengths of a tile's values by id, adds them up, writes offsets, and lets eight
threads copy a value. Offsets are of 32 bits, on both sides.
"""

TEXTS = r"""
extern "C" __global__ void __launch_bounds__(THREADS) weigh_tiles(
        const u8* ids, i64 rows, int n, int bits, i64 first_tile, i64 tiles, const int* ends, i64* sums) {
    __shared__ u32 sum[MOST_IDS];
    for (int id = threadIdx.x; id < n; id += THREADS) sum[id] = 0;
    __syncthreads();
    i64 base = (i64)blockIdx.x * TILE;
    int count = rows - base < TILE ? (int)(rows - base) : TILE;
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        int row = step * THREADS + threadIdx.x;
        u32 id = id_of(ids + base, row, count, 0, n);
        bool inside = id < MOST_IDS;
        u32 bytes = inside ? (u32)(ends[base + row + 1] - ends[base + row]) : 0;
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
    for (int id = threadIdx.x; id < n; id += THREADS) sums[id * tiles + first_tile + blockIdx.x] = sum[id];
}

// Of a text column: where the part's first offset and its first byte for an id belong, and that offset's value.
extern "C" __global__ void __launch_bounds__(THREADS, 2) scatter_texts(
        const u8* ids, i64 rows, int n, int bits, i64 first_tile, i64 tiles, const i64* row_ends, const i64* byte_ends,
        const int* ends, const u8* bytes, const u64* offset_targets, const u64* byte_targets, const i64* values) {
    __shared__ u32 room[2 * TILE + 1];
    __shared__ u8 id_at[TILE];
    __shared__ u16 start[MOST_IDS];
    __shared__ u64 to_offsets[MOST_IDS], to_bytes[MOST_IDS];
    __shared__ i64 value[MOST_IDS];
    __shared__ u32 warps[WARPS];
    u16 (*seen)[MOST_IDS] = (u16 (*)[MOST_IDS])room;
    u32* before = room;             // bytes of values that stand before one, in the order of ids; first their lengths
    u32* from = room + TILE + 1;    // where a value begins, after the tile's first byte
    i64 base = (i64)blockIdx.x * TILE, tile = first_tile + blockIdx.x;
    int count = rows - base < TILE ? (int)(rows - base) : TILE;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, first = warp * 32 * STEPS + lane;
    u32 id[STEPS];
    u16 place[STEPS];
    u32 total = rank_rows(ids + base, count, first, 0, n, bits, id, place, seen, start);
    put_in_order(id, place, seen, start, id_at);
    int tile_begin = ends[base];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (place[step] != NOWHERE) {
            i64 row = base + first + 32 * step;
            int begin = ends[row];
            before[place[step]] = (u32)(ends[row + 1] - begin);
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
        i64 end = threadIdx.x * tiles;
        i64 row_shift = row_ends[end + tile] - (end ? row_ends[end - 1] : 0) - total - start[threadIdx.x];
        i64 byte_shift = byte_ends[end + tile] - (end ? byte_ends[end - 1] : 0) - before[start[threadIdx.x] + total];
        to_offsets[threadIdx.x] = offset_targets[threadIdx.x] + 4 * row_shift;
        to_bytes[threadIdx.x] = byte_targets[threadIdx.x] + byte_shift;
        value[threadIdx.x] = values[threadIdx.x] + byte_shift;
    }
    __syncthreads();
    for (int at = threadIdx.x; at < count; at += THREADS)
        ((int*)to_offsets[id_at[at]])[at] = (int)(value[id_at[at]] + before[at]);
    for (int at = threadIdx.x / 8; at < count; at += THREADS / 8) {
        const u8* source = bytes + tile_begin + from[at];
        u8* target = (u8*)(to_bytes[id_at[at]] + before[at]);
        u32 length = before[at + 1] - before[at];
        for (u32 i = threadIdx.x & 7; i < length; i += 8) target[i] = source[i];
    }
}
"""
