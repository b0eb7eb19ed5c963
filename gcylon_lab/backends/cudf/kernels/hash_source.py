"""CUDA source of the hash form: the same numbers as `hashing` and `hash_text` give on the host.

The constants are taken from there, so that the two cannot drift apart.
"""

from __future__ import annotations

from ...host.keys import hash_strings, hashing


def _word(value: object) -> str:
    return f"{int(str(value)):#018x}ULL"


CONSTANTS = "\n".join(
    f"#define {name} {_word(value)}"
    for name, value in {
        "FIRST": hashing._FIRST,
        "SECOND": hashing._SECOND,
        "NULL_HASH": hashing.NULL_HASH,
        "ABOVE_INT64": hashing._ABOVE_INT64,
        "FRACTION": hashing._FRACTION,
        "LENGTH": hash_strings._LENGTH,
        "STEP": hash_strings._STEP,
        "LONG_BYTES": hash_strings._LONG_BYTES,
        "COMBINE": hashing._COMBINE,
    }.items()
)

# cupy compiles with -ftz=true, by which a plain conversion of a float32 value below 1.2e-38 gives zero.
WIDENED = r"""
static __device__ __forceinline__ double widened(double value) { return value; }
static __device__ __forceinline__ double widened(float value) {
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(value));
    return wide;
}
"""

NUMBERS = r"""
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned char u8;

static __device__ __forceinline__ u64 mixed(u64 bits) {
    bits *= FIRST;
    bits ^= bits >> 32;
    return bits * SECOND;
}

static __device__ __forceinline__ u64 hash_int(i64 value) { return mixed((u64)value); }

static __device__ __forceinline__ u64 hash_uint64(u64 value) {
    u64 hash = mixed(value);
    return value >> 63 ? hash ^ ABOVE_INT64 : hash;
}

WIDENED
static __device__ __forceinline__ u64 hash_float(double value) {
    if (value != value) return NULL_HASH;
    if (trunc(value) == value) {
        if (value >= -9223372036854775808.0 && value < 9223372036854775808.0) return mixed((u64)(i64)value);
        if (value >= 9223372036854775808.0 && value < 18446744073709551616.0) return mixed((u64)value) ^ ABOVE_INT64;
    }
    return mixed((u64)__double_as_longlong(value));
}

// A null is a bit of 0 in the mask; without a mask there is none.
static __device__ __forceinline__ bool valid(const u32* mask, i64 item) {
    return mask == 0 || (mask[item >> 5] >> (item & 31) & 1);
}

static __device__ __forceinline__ u32 reduced(u64 hash, u64 n, int shift) {
    return (u32)(shift ? hash >> shift : ((hash >> 32) * n) >> 32);
}
""".replace("WIDENED", WIDENED)

DECIMALS = r"""
static __device__ u64 scaled(i64 units, int scale) {
    u64 hash = hash_int(units);
    return scale ? (hash ^ (u64)scale) * FRACTION : hash;
}

// By value: trailing zeros are cut off; the 128 bits are divided by ten as four words of 32.
static __device__ __noinline__ u64 hash_decimal(u64 low, u64 high, int scale) {
    if (high == (u64)((i64)low >> 63)) {
        i64 units = (i64)low;
        while (scale > 0 && units % 10 == 0) { units /= 10; --scale; }
        return scaled(units, scale);
    }
    bool negative = high >> 63;
    if (negative) { low = ~low + 1; high = ~high + (low == 0); }
    while (scale > 0) {
        u32 words[4] = {(u32)(high >> 32), (u32)high, (u32)(low >> 32), (u32)low};
        u64 rest = 0;
        for (int i = 0; i < 4; ++i) {
            u64 part = rest << 32 | words[i];
            words[i] = (u32)(part / 10);
            rest = part % 10;
        }
        if (rest) break;
        high = (u64)words[0] << 32 | words[1];
        low = (u64)words[2] << 32 | words[3];
        --scale;
    }
    bool fits = high == 0 && (low >> 63 == 0 || (negative && low << 1 == 0));
    if (fits) return scaled((i64)(negative ? ~low + 1 : low), scale);
    if (high == 0 && scale == 0 && !negative) return hash_uint64(low);
    if (negative) { low = ~low + 1; high = ~high + (low == 0); }
    return mixed(low) ^ mixed(high ^ (u64)scale) >> 1;
}
"""

TEXTS = r"""
__constant__ u64 BLAKE_START[8] = {
    0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
    0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL};
__constant__ u8 BLAKE_ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static __device__ __forceinline__ u64 turned(u64 value, int by) { return value >> by | value << (64 - by); }

static __device__ __forceinline__ void stir(u64* v, int a, int b, int c, int d, u64 x, u64 y) {
    v[a] += v[b] + x; v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];     v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y; v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];     v[b] = turned(v[b] ^ v[c], 63);
}

static __device__ __forceinline__ u64 word_at(const u8* text, i64 left) {
    u64 word = 0;
    int count = left < 8 ? (int)left : 8;
    for (int i = 0; i < count; ++i) word |= (u64)text[i] << (8 * i);
    return word;
}

// blake2b with a digest of eight bytes, for the few long strings.
static __device__ __noinline__ u64 hash_long(const u8* text, i64 bytes) {
    u64 state[8], v[16], words[16];
    for (int i = 0; i < 8; ++i) state[i] = BLAKE_START[i];
    state[0] ^= 0x01010008ULL;
    for (i64 at = 0; at < bytes; at += 128) {
        bool last = at + 128 >= bytes;
        for (int i = 0; i < 16; ++i) {
            i64 left = bytes - at - 8 * i;
            words[i] = left > 0 ? word_at(text + at + 8 * i, left) : 0;
        }
        for (int i = 0; i < 8; ++i) { v[i] = state[i]; v[i + 8] = BLAKE_START[i]; }
        v[12] ^= (u64)(last ? bytes : at + 128);
        if (last) v[14] = ~v[14];
        for (int round = 0; round < 12; ++round) {
            const u8* order = BLAKE_ORDER[round % 10];
            for (int i = 0; i < 4; ++i)
                stir(v, i, i + 4, i + 8, i + 12, words[order[2 * i]], words[order[2 * i + 1]]);
            for (int i = 0; i < 4; ++i)
                stir(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4,
                     words[order[8 + 2 * i]], words[order[9 + 2 * i]]);
        }
        for (int i = 0; i < 8; ++i) state[i] ^= v[i] ^ v[i + 8];
    }
    return state[0];
}

static __device__ __forceinline__ u64 hash_text(const u8* text, i64 bytes) {
    if (bytes > (i64)LONG_BYTES) return mixed(hash_long(text, bytes));
    u64 state = (u64)(bytes + 1) * LENGTH;
    for (i64 left = bytes; left > 0; left -= 8, text += 8) {
        state ^= word_at(text, left);
        state *= STEP;
        state ^= state >> 32;
    }
    return mixed(state);
}
"""

# Four rows a thread; for plain numbers unrolled, so that enough loads are under way at one time.
KERNEL = r"""
extern "C" __global__ void __launch_bounds__(256) partition_ids(
        %(parameters)si64 rows, u64 n, int shift, u32 size, u32 buckets, %(id_type)s* ids) {
    i64 first = (i64)blockIdx.x * 1024 + threadIdx.x;
    #pragma unroll %(unroll)d
    for (int step = 0; step < 4; ++step) {
        i64 row = first + 256 * step;
        if (row < rows) {
            u64 total, hash;
            %(body)s
            u32 id = reduced(total, n, shift);
            ids[row] = (%(id_type)s)(buckets > 1 ? id %% buckets * size + id / buckets : id);
        }
    }
}
"""
