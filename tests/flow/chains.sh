# The odd files of the campaign alone, with one instruction set beside the best one.
CHAINS=odd CPUS=avx2 ENTRIES="new used" exec sh "$(dirname "$0")/../golden/chains_campaign.sh"
