"""The host side: world, symmetric tensors, streams and signals."""
