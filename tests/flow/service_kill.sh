# A sample of the campaign of killed daemons and workers: make test-long has the whole of it.
KILLS=${SERVICE_KILLS:-8} exec sh "$(dirname "$0")/service_kill_campaign.sh"
