# A sample of the campaign of cycles: make test-long has the whole of it.
CYCLES=${SERVICE_CYCLES:-300} exec sh "$(dirname "$0")/service_cycles_campaign.sh"
