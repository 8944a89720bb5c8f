#!/bin/sh
# Every published recipe, two steps on small pictures: recipes.sh with all of them.
NNPIPE_RECIPES=all exec sh "$(dirname "$0")/recipes.sh"
