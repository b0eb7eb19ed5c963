"""Several clusters in one notebook: which of them ``%px`` means, and what is said of one that was closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

import gcylon_lab as gl
from gcylon_lab.cluster.channel.views import activate
from gcylon_lab.errors import ClusterError

pytestmark = pytest.mark.mpi


@pytest.fixture
def shell(lab: gl.Cluster) -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    activate(lab.view)
    yield shell
    InteractiveShell.clear_instance()


def test_px_goes_back_to_the_one_before(shell: InteractiveShell, lab: gl.Cluster, hurt: gl.Cluster) -> None:
    activate(hurt.view)
    activate(lab.view)
    lab.view["whose"] = "first"
    second = gl.Cluster(1, name="second", progress=False)
    shell.run_line_magic("px", "whose = 'second'")
    assert (second.view["whose"], lab.view["whose"]) == (["second"], ["first", "first"])
    gone = second.view
    second.close()
    shell.run_line_magic("px", "whose = whose + ', again'")
    assert lab.view["whose"] == ["first, again"] * 2
    with pytest.raises(ClusterError, match="The cluster 'second' is closed"):
        gone.execute("1", block=True)
