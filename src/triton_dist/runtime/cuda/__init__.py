"""The world of ranks on CUDA GPUs: one process a GPU, a symmetric heap over the driver's virtual memory, direct pointers to peers."""
