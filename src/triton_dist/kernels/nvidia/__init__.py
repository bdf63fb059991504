"""The part of ``triton_dist.kernels`` that scripts import from its ``nvidia`` package; it runs on every machine."""
