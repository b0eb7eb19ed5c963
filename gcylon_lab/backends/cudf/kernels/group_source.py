"""CUDA source of a table of groups: rows are added to it, its groups are counted, found, and read out in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .hash_source import WIDENED

EMPTY = 0x8000000000000001  # of a place of the table; the key that looks like it has a place of its own, the last
# What the table says of itself: whether it was full, how many groups there are and were found, and for each step how
# far from zero the values were.
FULL, GROUPS, FOUND, LARGEST = 0, 1, 2, 3

_HEAD = """
typedef unsigned long long u64;
#define EMPTY 0x8000000000000001ull
#define ALL 0xffffffffu

__device__ __forceinline__ long long place_of(u64 key, u64* slots, unsigned mask) {
    if (key == EMPTY) { slots[(u64)mask + 1] = 0; return (long long)mask + 1; }
    unsigned slot = (unsigned)((key * 0x9E3779B97F4A7C15ull) >> 32) & mask;
    for (int tries = 0; tries < 128; tries++) {
        u64 there = slots[slot];
        if (there == EMPTY) {
            there = atomicCAS(&slots[slot], EMPTY, key);
            if (there == EMPTY) there = key;
        }
        if (there == key) return slot;
        slot = (slot + 1) & mask;
    }
    return -1;
}
__device__ __forceinline__ double over_lanes(double value) {
    for (int apart = 16; apart; apart >>= 1) value += __shfl_xor_sync(ALL, value, apart);
    return value;
}
__device__ __forceinline__ u64 over_lanes(u64 value) {
    for (int apart = 16; apart; apart >>= 1) value += __shfl_xor_sync(ALL, value, apart);
    return value;
}
"""
# Lanes whose key is that of lane 0 add up among themselves where they are many: a key that most rows have would
# otherwise be waited for by all.
_BODY = """
extern "C" __global__ void group_rows(
    const KEY* keys, long long rows, u64* slots, unsigned mask, u64* status PARAMETERS) {
    const int lane = threadIdx.x & 31;
    const long long step = (long long)gridDim.x * blockDim.x;
    int turn = 0;
BEFORE
    for (long long base = (long long)blockIdx.x * blockDim.x + threadIdx.x - lane; base < rows; base += step) {
        if ((turn++ & 15) == 0 && __any_sync(ALL, *(volatile u64*)status != 0)) break;
        const long long row = base + lane;
        const bool here = row < rows;
        const u64 key = here ? (u64)(long long)keys[row] : 0;
        const u64 first = __shfl_sync(ALL, key, 0);
        const unsigned alike = __ballot_sync(ALL, here && key == first);
        const bool together = __popc(alike) >= 8;
        const bool joins = together && here && key == first;
        const bool alone = here && !joins;
        const bool writes = alone || (together && lane == 0);
        const long long place = writes ? place_of(key, slots, mask) : 0;
        if (writes && place < 0) *status = 1;
        const bool adds = writes && place >= 0;
STEPS
    }
AFTER
}
"""
_ADD = """
        {
            const TYPE value = here ? (TYPE)READ(in_PLACE[row]) : (TYPE)0;
            LOOKS
            TYPE mine = SKIPS ? (TYPE)0 : value;
            if (together) {
                const TYPE sum = over_lanes(joins ? mine : (TYPE)0);
                if (!alone) mine = sum;
            }
            if (adds && mine != (TYPE)0) atomicAdd(&out_PLACE[place], mine);
        }
"""
_COUNT = """
        {
            const bool counts = here && !(MISSING);
            const u64 others = __popc(__ballot_sync(ALL, joins && counts));
            const u64 mine = alone ? (u64)counts : others;
            if (adds && mine) atomicAdd(&out_PLACE[place], mine);
        }
"""
# How far from zero a value was decides at the end whether a sum may have passed what 64 bits hold.
_LARGEST_LOOKS = "const u64 size_PLACE = SIZE; if (size_PLACE > largest_PLACE) largest_PLACE = size_PLACE;"
_LARGEST_AFTER = """
    for (int apart = 16; apart; apart >>= 1) {
        const u64 other = __shfl_xor_sync(ALL, largest_PLACE, apart);
        if (other > largest_PLACE) largest_PLACE = other;
    }
    if (lane == 0 && largest_PLACE) atomicMax(&status[AT], largest_PLACE);
"""
_READING = """
extern "C" __global__ void count_groups(const u64* slots, long long places, u64* status) {
    const long long step = (long long)gridDim.x * blockDim.x;
    u64 groups = 0;
    for (long long place = (long long)blockIdx.x * blockDim.x + threadIdx.x; place < places; place += step)
        groups += slots[place] != EMPTY;
    groups = over_lanes(groups);
    if ((threadIdx.x & 31) == 0 && groups) atomicAdd(&status[GROUPS_AT], groups);
}
extern "C" __global__ void find_groups(const u64* slots, long long places, u64* status, u64* found, unsigned* at) {
    const int lane = threadIdx.x & 31;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long base = (long long)blockIdx.x * blockDim.x + threadIdx.x - lane; base < places; base += step) {
        const long long place = base + lane;
        const u64 key = place < places ? slots[place] : EMPTY;
        const bool here = key != EMPTY;
        const unsigned taken = __ballot_sync(ALL, here);
        if (!taken) continue;
        u64 first = lane ? 0 : atomicAdd(&status[FOUND_AT], (u64)__popc(taken));
        first = __shfl_sync(ALL, first, 0);
        if (here) {
            const u64 group = first + __popc(taken & ((1u << lane) - 1));
            found[group] = place == places - 1 ? EMPTY : key;
            at[group] = (unsigned)place;
        }
    }
}
extern "C" __global__ void read_groups(
    const long long* order, long long groups, const u64* found, const unsigned* at, const u64* sums, long long places,
    KEY* keys, u64* results) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x; row < groups; row += step) {
        const long long group = order ? order[row] : row;
        const u64* sum = sums + at[group];
        keys[row] = (KEY)found[group];
RESULTS
    }
}
"""
C_TYPES = {
    "b1": "unsigned char", "i1": "signed char", "u1": "unsigned char", "i2": "short", "u2": "unsigned short",
    "i4": "int", "u4": "unsigned int", "i8": "long long", "u8": "unsigned long long", "f4": "float", "f8": "double",
}  # fmt: skip


class Step(NamedTuple):
    """What is added up of one input: ``float``, ``whole`` or ``count``, and whether NaN is left out."""

    how: str
    c_type: str
    skips: bool

    def parameters(self, place: int) -> str:
        """Its parameters of the kernel."""
        return f", const {self.c_type}* in_{place}, {'double' if self.how == 'float' else 'u64'}* out_{place}"

    def before(self, place: int) -> str:
        """Its lines of the kernel before the rows."""
        return f"    u64 largest_{place} = 0;" if self.how == "whole" else ""

    def source(self, place: int) -> str:
        """Its lines for some rows."""
        nan = f"here && in_{place}[row] != in_{place}[row]" if self.skips else "false"
        if self.how == "count":
            text = _COUNT.replace("MISSING", nan)
        else:
            signed = self.c_type != "unsigned long long"
            looks = _LARGEST_LOOKS.replace("SIZE", "(long long)value < 0 ? 0ull - value : value" if signed else "value")
            text = _ADD.replace("LOOKS", looks if self.how == "whole" else "")
            text = text.replace("SKIPS", nan).replace("TYPE", "double" if self.how == "float" else "u64")
            text = text.replace("READ", "widened" if self.c_type == "float" else "")
        return text.replace("PLACE", str(place))

    def after(self, place: int) -> str:
        """Its lines after the rows."""
        text = _LARGEST_AFTER if self.how == "whole" else ""
        return text.replace("PLACE", str(place)).replace("AT", str(LARGEST + place))


def source(key_type: str, steps: Sequence[Step], results: Sequence[int | None]) -> str:
    """All kernels of a table.

    Parameters
    ----------
    key_type : str
        As C has it.
    steps : sequence of Step
    results : sequence of int or None
        Of which step each column of results is; None where it is all zeros.
    """
    body = _BODY.replace("PARAMETERS", "".join(step.parameters(place) for place, step in enumerate(steps)))
    for name in ("before", "source", "after"):
        lines = "".join(getattr(step, name)(place) for place, step in enumerate(steps))
        body = body.replace("STEPS" if name == "source" else name.upper(), lines)
    lines = "".join(
        f"        results[{i} * groups + row] = {'0' if step is None else f'sum[{step} * places]'};\n"
        for i, step in enumerate(results)
    )
    reading = _READING.replace("GROUPS_AT", str(GROUPS)).replace("FOUND_AT", str(FOUND)).replace("RESULTS", lines)
    return _HEAD + WIDENED + (body + reading).replace("KEY", key_type)
