"""``gcylon-lab bench files``: reading and writing files beside the library that does it alone."""
