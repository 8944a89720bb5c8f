# A sample of the campaign: four kills and stops.
KILLS=4 exec sh "$(dirname "$0")/share_campaign.sh"
