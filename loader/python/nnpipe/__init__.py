"""nnpipe."""
