"""Spark settings -> the same, with driver and executors that know each other and encrypt what they say.

Rules only. Spark makes the secret itself on YARN and Kubernetes; on a standalone cluster master, workers and driver
must have been given the same one (Spark's documentation, "Security", "Authentication").
"""

from __future__ import annotations

from collections.abc import Mapping

AUTHENTICATE, SECRET = "spark.authenticate", "spark.authenticate.secret"
ENCRYPT = "spark.network.crypto.enabled"
TLS = "spark.ssl.rpc.enabled"
_MAKES_SECRETS = ("yarn", "k8s://")
OPEN_NOTE = (
    "driver and executors do not authenticate each other, and what they send is not encrypted; set "
    "spark.authenticate=true and spark.authenticate.secret on Spark's master and workers and here, or "
    "spark.authenticate=false to say that the network is safe"
)


def secure_cluster(conf: Mapping[str, str]) -> dict[str, str]:
    """Return what to add so that traffic between machines is authenticated and encrypted; the user's settings win."""
    master = conf.get("spark.master", "")
    if AUTHENTICATE not in conf and not (master.startswith(_MAKES_SECRETS) or SECRET in conf):
        return {}
    added = {AUTHENTICATE: "true"}
    if conf.get(AUTHENTICATE, "true").lower() == "true" and TLS not in conf:
        added[ENCRYPT] = "true"
    return {key: value for key, value in added.items() if key not in conf}


def is_open(conf: Mapping[str, str]) -> bool:
    """Tell whether machines talk to each other unprotected, and nobody said that this is meant."""
    return AUTHENTICATE not in conf and not conf.get("spark.master", "").startswith("local-cluster[")
