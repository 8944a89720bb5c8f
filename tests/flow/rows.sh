# A sample of the campaign, on made files.
KILLS=5 SETS=odd REPLAYED=3 exec sh "$(dirname "$0")/rows_campaign.sh"
