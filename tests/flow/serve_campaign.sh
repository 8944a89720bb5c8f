# All of serve.sh, with 1,000 bad requests.
BAD=1000 exec sh "$(dirname "$0")/serve.sh"
