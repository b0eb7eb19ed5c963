"""The processes of a cluster: how they are started, watched and ended."""
