# A sample of the campaign: the first of its files.
JPEGS=4000 exec sh "$(dirname "$0")/jpegs_campaign.sh"
