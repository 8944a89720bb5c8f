#!/bin/sh
# The wheel again, with what pip fetches from the network: NumPy, mypy.
NNPIPE_LONG=1 exec bash "$(dirname "$0")/wheel.sh"
