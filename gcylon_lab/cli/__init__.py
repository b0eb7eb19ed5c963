"""``gcylon-lab``: the command line."""
