"""Numbers looked up in a table of one side's, whatever their range: by place, by place in a list of rows, by hash."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab.backends.host.keys.int_hash_table import CodeTable, places_bytes
from gcylon_lab.backends.host.take import take_some

ENDS = np.iinfo(np.int64)


@pytest.mark.parametrize("step", [1, 3, 11, 40, 10**6])
@pytest.mark.parametrize("low", [0, -(10**6), ENDS.min])
@pytest.mark.parametrize("repeated", [False, True])
def test_ids_are_equal_for_equal_numbers_alone(step, low, repeated):
    rng = np.random.default_rng(step)
    own = low + step * rng.permutation(5000).astype(np.int64)
    own = np.concatenate([own, own[::7]]) if repeated else own
    other = np.concatenate([own[::3], own[:100] + 1, [ENDS.min, ENDS.max, 0, low - 1 if low > ENDS.min else low]])
    for more in (0, places_bytes(own, 0), 1 << 26):
        table = CodeTable(own, more)
        ids = CodeTable(own, more).ids()
        assert (
            len(set(zip(ids.tolist(), own.tolist(), strict=True))) == len(set(own.tolist())) == len(set(ids.tolist()))
        )
        assert ids.min() >= 0 and ids.max() < table.count
        known = dict(zip(own.tolist(), ids.tolist(), strict=True))
        assert table.find(other).tolist() == [known.get(number, -1) for number in other.tolist()]


def test_places_are_offered_where_to_look_up_numbers_in_them_pays():
    assert places_bytes(np.arange(0, 100_000, 20), 0) == 4 * (99_980 + 2)
    assert places_bytes(np.arange(5000) * 10, 0) == 0  # they take no more than a hash table's slots
    assert places_bytes(np.arange(5000) * 1000, 0) == 0  # they take longer to fill than to hash so few
    assert places_bytes(np.arange(5000) * 1000, 10**7) == 4 * (4_999_000 + 2)
    assert places_bytes(np.array([0, ENDS.max]), 0) == places_bytes(np.empty(0, np.int64), 9) == 0


@given(st.data())
def test_rows_are_taken_of_each_chunk_as_of_one_array(data):
    values = st.none() | st.text(max_size=3)
    array = pa.chunked_array(data.draw(st.lists(st.lists(values, max_size=5), max_size=5)), pa.large_string())
    start = data.draw(st.integers(0, len(array)))
    array = array.slice(start, data.draw(st.integers(0, len(array))))
    rows = data.draw(st.lists(st.integers(0, len(array) - 1), max_size=8) if len(array) else st.just([]))
    rows = np.array(sorted(rows) if data.draw(st.booleans()) else rows, np.int64)
    found = take_some(array, rows)
    assert found.type == array.type
    assert found.to_pylist() == [array[row].as_py() for row in rows.tolist()]
