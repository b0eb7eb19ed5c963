"""Measurements that the page of figures come from, each a sub-command of ``gcylon-lab bench``."""
