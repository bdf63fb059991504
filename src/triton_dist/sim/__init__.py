"""The simulator: a Triton back end that runs kernels of many ranks in one process, in numpy, and names what is wrong in them."""
