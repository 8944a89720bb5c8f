# Three of the campaign's kills.
KILLS=3 exec sh "$(dirname "$0")/damaged_campaign.sh"
