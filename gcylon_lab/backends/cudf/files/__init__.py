"""Files that are decoded and encoded in device memory."""
