"""What handles know of their tables stays right while operations stage them and others are given up."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.errors import BudgetExceeded

pytestmark = pytest.mark.mpi

_TIGHT = gl.GcylonConfig(gpu_memory_limit="2MiB")


@pytest.fixture
def big() -> pd.DataFrame:
    """About 3 MiB a rank on two ranks."""
    rng = np.random.default_rng(3)
    return pd.DataFrame({"k": rng.integers(0, 1000, 400_000), "v": rng.random(400_000)})


def there(lab: gl.Cluster, table: gl.DistTable) -> list[dict[str, object]]:
    return lab.run(lambda t: t.info(), table)


def here(table: gl.DistTable) -> list[dict[str, object]]:
    """What the handle knows, but for who staged it, which only the ranks' engines know."""
    return [{key: value for key, value in info.items() if key != "staged_by"} for info in table.info()]


def test_a_plan_knows_what_an_operation_has_staged(lab: gl.Cluster, big: pd.DataFrame) -> None:
    table = lab.from_pandas(big)
    assert table.tiers["disk"] == 0
    table.shuffle("k", config=_TIGHT).release()
    assert table.tiers["disk"] > 0
    assert here(table) == there(lab, table)
    for limit in range(6, 14):
        config = gl.GcylonConfig(gpu_memory_limit=f"{limit}MiB")
        try:
            plan = table.plan_shuffle("k", strategy="direct", config=config)
        except BudgetExceeded:
            continue  # and so says the run, which would stage nothing more
        try:
            run = table.shuffle("k", strategy="direct", config=config).last_plan
        except BudgetExceeded:  # keys are not spread quite as evenly as a plan assumes
            assert plan.predicted_peak_bytes > 0.98 * limit * 2**20
            continue
        assert run is not None
        assert run.predicted_peak_bytes == pytest.approx(plan.predicted_peak_bytes, rel=0.02)
        break
    else:
        pytest.fail("no limit was enough")


def test_an_operation_that_fails_tells_what_it_staged(lab: gl.Cluster, big: pd.DataFrame) -> None:
    table = lab.from_pandas(big)
    with pytest.raises(BudgetExceeded):  # the result fits once the table has given way, but no chunk beside it
        table.shuffle("k", strategy="direct", config=gl.GcylonConfig(gpu_memory_limit="3.5MiB"))
    assert table.tiers["disk"] > 0
    assert here(table) == there(lab, table)


def test_a_plan_does_not_count_what_is_given_up(lab: gl.Cluster, big: pd.DataFrame) -> None:
    table = lab.from_pandas(big)
    alone = table.plan_shuffle("k", strategy="direct").predicted_peak_bytes
    other = table.shuffle("k")
    assert table.plan_shuffle("k", strategy="direct").predicted_peak_bytes > alone
    del other
    assert table.plan_shuffle("k", strategy="direct").predicted_peak_bytes == alone
    lab.view.execute("kept = gl.from_local(__import__('pandas').DataFrame({'a': range(1000)}))", block=True)
    assert table.plan_shuffle("k", strategy="direct").predicted_peak_bytes == alone + 8000
    lab.view.execute("del kept", block=True)
    assert table.plan_shuffle("k", strategy="direct").predicted_peak_bytes == alone
