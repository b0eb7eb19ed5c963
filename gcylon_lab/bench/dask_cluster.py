"""Dask's own workers, as a peer of the benches."""

from __future__ import annotations

from typing import Any


def dask_cluster(workers: int, *, dashboard_address: str | None = None) -> Any:
    """Start workers of one thread each, processes of their own, that believe nobody else of this host.

    Without TLS whoever connects to their ports can run commands as this user.
    """
    from distributed import LocalCluster
    from distributed.security import Security

    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=dashboard_address,
        security=Security.temporary(),
    )  # fmt: skip
