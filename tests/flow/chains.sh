# The odd files of the campaign alone, with one instruction set.
CHAINS=odd CPUS=avx2 exec sh "$(dirname "$0")/../golden/chains_campaign.sh"
