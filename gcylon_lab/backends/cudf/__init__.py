"""The backend of GPU ranks: columns in device memory, by libcudf and kernels."""
