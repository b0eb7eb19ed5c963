"""Dask beside our benches runs nobody else's commands."""

import socket

import pytest

from gcylon_lab.bench.dask_cluster import dask_cluster


@pytest.mark.slow
def test_dask_answers_nobody_without_its_keys():
    distributed = pytest.importorskip("distributed", reason="dask is in the bench extra")
    cluster = dask_cluster(1)
    try:
        with distributed.Client(cluster) as client:
            assert client.submit(sum, (1, 2)).result() == 3
            ports = [cluster.scheduler_address, *client.scheduler_info()["workers"]]
        for port in ports:
            assert port.startswith("tls://127.0.0.1:")
            with socket.create_connection(("127.0.0.1", int(port.rpartition(":")[2])), timeout=10) as link:
                try:
                    link.sendall(b"\x00" * 64)
                    said = link.recv(1 << 16)
                except ConnectionResetError:
                    said = b""
                assert said[:1] in (b"", b"\x15"), "an alert of TLS at most"
    finally:
        cluster.close()
