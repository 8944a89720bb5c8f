# A sample of the campaign: four kills.
KILLS=4 exec sh "$(dirname "$0")/kill_campaign.sh"
