"""The health endpoint of this container -> exit code 0 (UP) or 1; ICEBRIDGE_HEALTH names another address."""

import os
import sys
import urllib.error
import urllib.request

URL = os.environ.get("ICEBRIDGE_HEALTH", "http://127.0.0.1:8080/q/health")
# Without the proxy of the environment, which knows no address of this container.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    with OPENER.open(URL, timeout=4) as answer:
        sys.stdout.write(answer.read().decode()[:2000])
except urllib.error.HTTPError as error:
    sys.stdout.write(error.read().decode()[:2000])
    sys.exit(1)
except OSError as error:
    sys.stdout.write(f"{URL}: {error}")
    sys.exit(1)
