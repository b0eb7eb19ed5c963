"""CUDA source that finds the values of delimited text and reads them, with the meaning that Arrow's csv reader gives.

A value that it does not surely read so, such as one with blanks around it, is told as doubtful: whoever asked reads
the text otherwise then. Numbers are rounded correctly. `PARSE` is C++ as well, and tested as such.
"""

PARSE = r"""
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned char u8;

enum { NULL_VALUE = 0, VALUE = 1, DOUBTFUL = 2 };

static __device__ __constant__ const double POWERS[23] = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22};

// Texts that stand for a missing value: each of `nulls` is its length and its bytes, the last one is of length 255.
static __device__ bool is_null(const u8* text, int length, const u8* nulls) {
    for (; *nulls != 255; nulls += 1 + *nulls) {
        if (*nulls != length) continue;
        bool same = true;
        for (int i = 0; same && i < length; ++i) same = nulls[1 + i] == text[i];
        if (same) return true;
    }
    return false;
}

static __device__ int read_int(const u8* text, int length, i64* value) {
    bool negative = length > 0 && text[0] == '-';
    int at = negative;
    if (at == length || length - at > 19) return DOUBTFUL;
    u64 sum = 0;
    for (; at < length; ++at) {
        u32 digit = text[at] - '0';
        if (digit > 9) return DOUBTFUL;
        sum = 10 * sum + digit;  // 19 digits are less than 2^64
    }
    if (sum > 0x7fffffffffffffffull + negative) return DOUBTFUL;
    *value = (i64)(negative ? 0 - sum : sum);
    return VALUE;
}

// (high * 2^64 + low) / divisor, where high < divisor and divisor >= 2^63: algorithm D of Knuth, volume 2.
static __device__ u64 divide(u64 high, u64 low, u64 divisor, u64* rest) {
    const u64 base = 1ull << 32;
    u64 d1 = divisor >> 32, d0 = divisor & 0xffffffffull, l1 = low >> 32, l0 = low & 0xffffffffull;
    u64 q1 = high / d1, r = high - q1 * d1;
    while (q1 >= base || q1 * d0 > base * r + l1) {
        --q1;
        r += d1;
        if (r >= base) break;
    }
    u64 middle = high * base + l1 - q1 * divisor;
    u64 q0 = middle / d1;
    r = middle - q0 * d1;
    while (q0 >= base || q0 * d0 > base * r + l0) {
        --q0;
        r += d1;
        if (r >= base) break;
    }
    *rest = middle * base + l0 - q0 * divisor;
    return q1 * base + q0;
}

// digits / 10^power, rounded to the nearest double, ties to even; 1 <= power <= 27, digits > 0.
static __device__ double quotient(u64 digits, int power) {
    u64 divisor = 1;
    for (int i = 0; i < power; ++i) divisor *= 5;  // less than 2^63
    int up = __clzll((i64)digits), down = __clzll((i64)divisor);
    u64 high = digits << up, low = 0, rest;
    divisor <<= down;
    int exponent = down - up - 64 - power;
    if (high >= divisor) {
        low = high << 63;
        high >>= 1;
        ++exponent;
    }
    u64 bits = divide(high, low, divisor, &rest);  // at least 2^63
    u64 top = bits >> 11, below = bits & 0x7ff;
    if (below > 0x400 || (below == 0x400 && (rest || (top & 1)))) ++top;
    return ldexp((double)top, exponent + 11);
}

static __device__ int read_float(const u8* text, int length, double* value) {
    int at = length > 0 && text[0] == '-', fraction = 0, significant = 0;
    bool negative = at, digits_there = false, point = false;
    u64 digits = 0;
    for (; at < length; ++at) {
        u32 digit = text[at] - '0';
        if (digit <= 9) {
            digits_there = true;
            if (digits || digit) {
                if (++significant > 19) return DOUBTFUL;
                digits = 10 * digits + digit;
            }
            fraction += point;
        } else if (text[at] == '.' && !point) {
            point = true;
        } else {
            break;
        }
    }
    if (!digits_there) return DOUBTFUL;
    int power = 0;
    if (at < length) {
        if ((text[at] | 32) != 'e') return DOUBTFUL;
        ++at;
        bool down = at < length && text[at] == '-';
        at += at < length && (text[at] == '-' || text[at] == '+');
        if (at == length || length - at > 3) return DOUBTFUL;
        for (; at < length; ++at) {
            u32 digit = text[at] - '0';
            if (digit > 9) return DOUBTFUL;
            power = 10 * power + (int)digit;
        }
        if (down) power = -power;
    }
    power -= fraction;
    double found;
    if (!digits) found = 0;
    else if (!power) found = (double)digits;
    else if (digits <= (1ull << 53) && power >= -22 && power <= 22)  // both are exact: rounded once
        found = power < 0 ? (double)digits / POWERS[-power] : (double)digits * POWERS[power];
    else if (power < 0 && power >= -27) found = quotient(digits, -power);
    else return DOUBTFUL;
    *value = negative ? -found : found;
    return VALUE;
}

static __device__ bool same_text(const u8* text, int length, const char* other, int other_length) {
    if (length != other_length) return false;
    for (int i = 0; i < length; ++i) if (text[i] != (u8)other[i]) return false;
    return true;
}

static __device__ int read_bool(const u8* text, int length, int ones, bool* value) {
    bool yes = same_text(text, length, "true", 4) || same_text(text, length, "True", 4) ||
               same_text(text, length, "TRUE", 4) || (ones && same_text(text, length, "1", 1));
    bool no = same_text(text, length, "false", 5) || same_text(text, length, "False", 5) ||
              same_text(text, length, "FALSE", 5) || (ones && same_text(text, length, "0", 1));
    *value = yes;
    return yes || no ? VALUE : DOUBTFUL;
}

static __device__ bool read_digits(const u8* text, int count, int* value) {
    *value = 0;
    for (int i = 0; i < count; ++i) {
        u32 digit = text[i] - '0';
        if (digit > 9) return false;
        *value = 10 * *value + (int)digit;
    }
    return true;
}

// YYYY-MM-DD, and perhaps hh:mm or hh:mm:ss after a blank or a T, with up to `places` digits of a second's fraction.
static __device__ int read_time(const u8* text, int length, int places, i64* value) {
    int year, month, day, hour = 0, minute = 0, second = 0;
    i64 part = 0, ticks = 1;
    for (int i = 0; i < places; ++i) ticks *= 10;
    if (length < 10 || text[4] != '-' || text[7] != '-' || !read_digits(text, 4, &year) ||
        !read_digits(text + 5, 2, &month) || !read_digits(text + 8, 2, &day)) return DOUBTFUL;
    if (year < 1 || month < 1 || month > 12 || day < 1) return DOUBTFUL;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > (month == 2 ? 28 + leap : 30 + ((month + (month > 7)) & 1))) return DOUBTFUL;
    if (places == 9 && (year < 1678 || year > 2261)) return DOUBTFUL;  // which a tick of a nanosecond does not reach
    if (length > 10) {
        if (length < 16 || (text[10] != ' ' && text[10] != 'T') || text[13] != ':') return DOUBTFUL;
        if (!read_digits(text + 11, 2, &hour) || !read_digits(text + 14, 2, &minute)) return DOUBTFUL;
        if (hour > 23 || minute > 59) return DOUBTFUL;
    }
    if (length > 16) {
        if (length < 19 || text[16] != ':' || !read_digits(text + 17, 2, &second) || second > 59) return DOUBTFUL;
    }
    if (length > 19) {
        int count = length - 20;
        if (text[19] != '.' || count < 1 || count > places) return DOUBTFUL;
        for (int i = 0; i < places; ++i) {
            u32 digit = i < count ? text[20 + i] - '0' : 0;
            if (digit > 9) return DOUBTFUL;
            part = 10 * part + digit;
        }
    }
    int shifted = year - (month <= 2), era = shifted / 400;  // days since 1970-01-01, of years that begin in March
    int of_era = shifted - era * 400, of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    i64 days = (i64)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
    *value = (((days * 24 + hour) * 60 + minute) * 60 + second) * ticks + part;
    return VALUE;
}
"""

KERNELS = r"""
#define THREADS 256
#define STEP 16  // bytes of a thread

// What `told` has at each place: whether quotes or carriage returns are where they are not expected, whether lines are
// cut otherwise than every `columns` values, whether a value is doubtful, whether a float may be a rounded int, how
// many floats are left to the host, and for each column whether it has nulls.
enum { OTHER_BYTES = 0, OTHER_SHAPE = 1, DOUBTFUL_VALUE = 2, LARGE_FLOAT = 3, LEFT = 4, NULLS = 5 };
#define MOST_LEFT 4096


// The sum of what threads before this one have; all threads of a block call it.
static __device__ u32 before_me(u32 mine, u32* sums) {
    sums[threadIdx.x] = mine;
    __syncthreads();
    for (int reach = 1; reach < THREADS; reach *= 2) {
        u32 before = threadIdx.x >= reach ? sums[threadIdx.x - reach] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    u32 sum = sums[threadIdx.x] - mine;
    __syncthreads();
    return sum;
}

static __device__ u32 quotes_of(const u8* bytes, i64 first, i64 nbytes) {
    u32 found = 0;
    for (int i = 0; i < STEP && first + i < nbytes; ++i) found += bytes[first + i] == '"';
    return found;
}

// A double quote opens a value where that begins, and closes it where it ends; inside, two stand for one.
static __device__ bool is_in_place(const u8* bytes, i64 at, i64 nbytes, u8 delimiter, bool inside) {
    if (!inside && at == 0) return true;
    if (inside && at + 1 == nbytes) return true;
    u8 beside = bytes[inside ? at + 1 : at - 1];
    return beside == delimiter || beside == '\n' || beside == '"';
}

// `before`: how many quotes there are before each block, or 0 where there are none, or they are plain characters.
static __device__ int marks_of(
        const u8* bytes, i64 first, i64 nbytes, u8 delimiter, const i64* before, u32* sums, u32* places, int* told) {
    bool inside = false;
    if (before) {
        u32 mine = quotes_of(bytes, first, nbytes);
        inside = (before[blockIdx.x] + before_me(mine, sums)) & 1;
    }
    int found = 0;
    for (int i = 0; i < STEP && first + i < nbytes; ++i) {
        u8 byte = bytes[first + i];
        if (before && byte == '"') {
            if (told && !is_in_place(bytes, first + i, nbytes, delimiter, inside)) told[OTHER_BYTES] = 1;
            inside = !inside;
        } else if (!inside) {
            if (byte == delimiter || byte == '\n') places[found++] = (u32)(first + i);
            if (told && byte == '\r') told[OTHER_BYTES] = 1;
        }
    }
    return found;
}

extern "C" __global__ void __launch_bounds__(THREADS) count_quotes(const u8* bytes, i64 nbytes, u32* counts) {
    __shared__ u32 sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    u32 found = quotes_of(bytes, ((i64)blockIdx.x * THREADS + threadIdx.x) * STEP, nbytes);
    if (found) atomicAdd(&sum, found);
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) count_marks(
        const u8* bytes, i64 nbytes, u8 delimiter, const i64* before, u32* counts, int* told) {
    __shared__ u32 sums[THREADS], sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    u32 places[STEP];
    i64 first = ((i64)blockIdx.x * THREADS + threadIdx.x) * STEP;
    int found = marks_of(bytes, first, nbytes, delimiter, before, sums, places, told);
    if (found) atomicAdd(&sum, (u32)found);
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = sum;
}

// `ends` has, for each block, how many marks there are up to its last byte.
extern "C" __global__ void __launch_bounds__(THREADS) place_marks(
        const u8* bytes, i64 nbytes, u8 delimiter, const i64* before, int columns, const i64* ends, u32* marks,
        int* told) {
    __shared__ u32 sums[THREADS];
    u32 places[STEP];
    i64 first = ((i64)blockIdx.x * THREADS + threadIdx.x) * STEP;
    int found = marks_of(bytes, first, nbytes, delimiter, before, sums, places, 0);
    i64 at = (blockIdx.x ? ends[blockIdx.x - 1] : 0) + before_me(found, sums);
    for (int i = 0; i < found; ++i, ++at) {
        marks[at] = places[i];
        if ((bytes[places[i]] == '\n') != (at % columns == columns - 1)) told[OTHER_SHAPE] = 1;
        // Of a single column, a blank line is none; it would be a missing value here.
        if (columns == 1 && (places[i] == 0 || bytes[places[i] - 1] == '\n')) told[OTHER_SHAPE] = 1;
    }
}

struct Text { const u8* at; int length; };

// What stands between marks, without the quotes around it.
static __device__ Text text_of(const u8* bytes, const u32* marks, i64 row, int columns, int column, int quoted) {
    i64 place = row * columns + column;
    u32 first = place ? marks[place - 1] + 1 : 0;
    int around = quoted && bytes[first] == '"';
    return {bytes + first + around, (int)(marks[place] - first) - 2 * around};
}

static __device__ bool there(Text text, int state, const u8* nulls, u8* valid, i64 row, int column, int* told) {
    if (state == DOUBTFUL) {
        if (!is_null(text.at, text.length, nulls)) told[DOUBTFUL_VALUE] = 1;
        told[NULLS + column] = 1;
    }
    valid[row] = state == VALUE;
    return state == VALUE;
}

#define ROWS(NAME, ...) extern "C" __global__ void __launch_bounds__(THREADS) NAME( \
        const u8* bytes, const u32* marks, i64 rows, int columns, int column, int quoted, const u8* nulls, u8* valid, \
        int* told, \
        __VA_ARGS__)
#define ROW i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; if (row >= rows) return; \
        Text text = text_of(bytes, marks, row, columns, column, quoted);

ROWS(read_ints, i64* values, i64 option) {
    ROW
    i64 value = 0;
    values[row] = there(text, read_int(text.at, text.length, &value), nulls, valid, row, column, told) ? value : 0;
}

// What cannot be read here is left to the host: its place among all values is put into `left`.
ROWS(read_floats, double* values, i64 may_be_large, i64* left) {
    ROW
    double value = 0;
    int state = read_float(text.at, text.length, &value);
    if (state == DOUBTFUL && !is_null(text.at, text.length, nulls)) {
        int place = atomicAdd(told + LEFT, 1);
        if (place < MOST_LEFT) left[place] = row * columns + column;
        else told[DOUBTFUL_VALUE] = 1;
        state = VALUE;
    }
    bool found = there(text, state, nulls, valid, row, column, told);
    if (found && !may_be_large && fabs(value) >= 9007199254740992.0) told[LARGE_FLOAT] = 1;
    values[row] = found ? value : nan("");
}

ROWS(read_bools, bool* values, i64 ones) {
    ROW
    bool value = false;
    int state = read_bool(text.at, text.length, (int)ones, &value);
    values[row] = there(text, state, nulls, valid, row, column, told) && value;
}

ROWS(read_times, i64* values, i64 places) {
    ROW
    i64 value = 0;
    bool found = there(text, read_time(text.at, text.length, (int)places, &value), nulls, valid, row, column, told);
    values[row] = found ? value : (i64)0x8000000000000000ull;
}

ROWS(measure_texts, int* lengths, i64 option) {
    ROW
    bool null = is_null(text.at, text.length, nulls);
    if (null) told[NULLS + column] = 1;
    valid[row] = !null;
    int inner = 0;  // of two quotes one stays
    if (quoted) for (int i = 0; i < text.length; ++i) inner += text.at[i] == '"';
    lengths[row] = null ? 0 : text.length - inner / 2;
}

// A warp copies a text; `offsets` says where each begins.
extern "C" __global__ void __launch_bounds__(THREADS) copy_texts(
        const u8* bytes, const u32* marks, i64 rows, int columns, int column, int quoted, const int* offsets,
        u8* chars) {
    i64 row = ((i64)blockIdx.x * THREADS + threadIdx.x) / 32;
    if (row >= rows) return;
    Text text = text_of(bytes, marks, row, columns, column, quoted);
    int first = offsets[row], length = offsets[row + 1] - first, lane = threadIdx.x & 31;
    if (length == 0) return;
    if (length == text.length) {
        for (int i = lane; i < length; i += 32) chars[first + i] = text.at[i];
    } else if (lane == 0) {
        for (int i = 0, to = first; i < text.length; ++i, ++to) {
            chars[to] = text.at[i];
            i += text.at[i] == '"';
        }
    }
}
"""
