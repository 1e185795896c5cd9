"""AWS credentials -> a login token for Amazon MSK: a signed request, as text, that the broker shows to AWS.

MSK takes it by OAUTHBEARER, whichever library makes it; Java's own mechanism AWS_MSK_IAM signs the same.
Source: AWS General Reference, "Create a signed AWS API request" (signature in the query); aws-msk-iam-sasl-signer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

import attrs

from connector.errors import FatalError
from connector.kafka.tokens.oauth import AccessToken
from connector.runtime.aws_credentials import AwsCredentials, AwsIdentity, find_credentials, forget_credentials

_SERVICE, _ALGORITHM = "kafka-cluster", "AWS4-HMAC-SHA256"
_LIFETIME_S = 900
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::|,|$)")
_EMPTY_DIGEST = hashlib.sha256(b"").hexdigest()


@attrs.frozen
class MskLogin:
    """How to find credentials: a profile of AWS's configuration files, a role to take on, or neither."""

    region: str
    profile: str = ""
    role: str = ""


def find_region(servers: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the region of brokers by their names, else the environment's. FatalError without any."""
    found = _REGION.search(servers)
    region = found[1] if found else environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise FatalError("AWS_MSK_IAM: the brokers' names contain no region; set AWS_REGION")
    return region


def make_token(login: MskLogin) -> AccessToken:
    """Return a token of a quarter of an hour. FatalError without credentials, RetriableError for now."""
    now = time.time()
    credentials = find_credentials(_identify(login), "AWS_MSK_IAM")
    return AccessToken(sign_token(credentials, login.region, now), now + _LIFETIME_S)


def forget_keys(login: MskLogin) -> None:
    """Sign the next token by other credentials, if there are any: brokers refuse what these have signed."""
    forget_credentials(_identify(login))


def _identify(login: MskLogin) -> AwsIdentity:
    return AwsIdentity(login.profile, login.role, login.region)


def sign_token(credentials: AwsCredentials, region: str, now: float) -> str:
    """Return the signed request as MSK takes it: its URL in base64, for URLs, without padding."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    host, scope = f"kafka.{region}.amazonaws.com", f"{stamp[:8]}/{region}/{_SERVICE}/aws4_request"
    query = {
        "Action": f"{_SERVICE}:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(_LIFETIME_S),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token:
        query["X-Amz-Security-Token"] = credentials.session_token
    query_string = "&".join(f"{quote(name, safe='-_.~')}={quote(query[name], safe='-_.~')}" for name in sorted(query))
    canonical = "\n".join(["GET", "/", query_string, f"host:{host}", "", "host", _EMPTY_DIGEST])
    text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    url = f"https://{host}/?{query_string}&X-Amz-Signature={signature}&User-Agent=icebridge"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
