"""A request -> the headers that sign it for AWS (Signature Version 4), without AWS's own library.

Source: AWS General Reference, "Create a signed AWS API request".
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from urllib.parse import parse_qsl, quote, urlsplit

import attrs

from connector.runtime.aws_credentials import AwsCredentials

_ALGORITHM = "AWS4-HMAC-SHA256"
_CONTENT_HEADER = "x-amz-content-sha256"
_OWN_PORTS = {"http": ":80", "https": ":443"}


@attrs.frozen
class RequestSigner:
    """Signs requests to one service in one region; opensearch-py calls it with each. `now` gives seconds since 1970.

    `find` gives the credentials of the moment: those of roles are renewed while a process runs.
    """

    region: str
    find: Callable[[], AwsCredentials] = attrs.field(repr=False, eq=False)
    service: str = "es"
    content: bool = True
    now: Callable[[], float] = attrs.field(default=time.time, eq=False)

    def __call__(self, method: str, url: str, body: bytes | str | None) -> dict[str, str]:
        """Return the headers to add to a request. FatalError, RetriableError without credentials."""
        credentials = self.find()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.now()))
        digest = hashlib.sha256(body.encode() if isinstance(body, str) else body or b"").hexdigest()
        headers = {"host": _find_host(url), "x-amz-date": stamp}
        if self.content:
            headers[_CONTENT_HEADER] = digest
        if credentials.session_token:
            headers["x-amz-security-token"] = credentials.session_token
        scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
        text = "\n".join([_ALGORITHM, stamp, scope, _sha256_hex(self._canonical(method, url, headers, digest))])
        key = f"AWS4{credentials.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        signed = ";".join(sorted(headers))
        authorization = f"Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        return {**headers, "Authorization": f"{_ALGORITHM} {authorization}"}

    def _canonical(self, method: str, url: str, headers: dict[str, str], digest: str) -> str:
        parts = urlsplit(url)
        query = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(parts.query, True))
        # Every service but S3 wants the path encoded a second time.
        path = quote(parts.path or "/", safe="/-_.~")
        lines = [f"{name}:{headers[name].strip()}" for name in sorted(headers)]
        asked = "&".join(f"{k}={v}" for k, v in query)
        return "\n".join([method, path, asked, *lines, "", ";".join(sorted(headers)), digest])


def _find_host(url: str) -> str:
    """Return the host as requests name it: a port that is the scheme's own stays out (the client puts it in)."""
    parts = urlsplit(url)
    return parts.netloc.removesuffix(_OWN_PORTS.get(parts.scheme, ""))


def _sha256_hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
