"""Measurements that the README's figures come from, each a sub-command of ``gcylon-lab bench``."""
