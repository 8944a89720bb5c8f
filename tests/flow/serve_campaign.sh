# All of serve.sh, with 5,000 bad requests.
BAD=5000 exec sh "$(dirname "$0")/serve.sh"
