"""A sample of the campaign of killed daemons and workers: make test-long has the whole of it."""
import os
import sys

campaign = os.path.join(os.path.dirname(os.path.abspath(__file__)), "service_kill_campaign.py")
os.execve(sys.executable, [sys.executable, campaign], dict(os.environ, KILLS=os.environ.get("SERVICE_KILLS", "8")))
