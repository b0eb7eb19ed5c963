"""Stands in the way of the package of this name, in the path of JupyterLabs that tests start: jsonschema does without
it, and its grammars of international addresses, which no page of a test has, take two seconds to load."""

raise ImportError("JupyterLab starts without it")
