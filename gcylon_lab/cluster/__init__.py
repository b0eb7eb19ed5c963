"""The cluster: the notebook's side (launcher, client, handles) and the engines' side.

The two halves meet in `messages`. The notebook's half loads neither mpi4py nor a GPU library.
"""
