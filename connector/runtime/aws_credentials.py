"""The machine's AWS configuration -> credentials of now, renewed before they end. On every process that signs.

They are found as AWS's own libraries find them (environment, profiles, web identities, containers, instances), where
botocore is installed; without it the environment's keys count.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from connector.errors import FatalError, RetriableError

_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_SESSION_NAME = "icebridge"
_ROLE_RENEW_S = 300.0
_BUSY = frozenset(
    {
        "InternalFailure",
        "InternalServiceException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_SERVER_ERROR = 500


@attrs.frozen
class AwsCredentials:
    """A key pair, and the token of a role's session."""

    access_key: str
    secret_key: str = attrs.field(repr=False)
    session_token: str = attrs.field(default="", repr=False)


@attrs.frozen
class AwsIdentity:
    """Whose credentials: those of a profile of AWS's configuration files, of a role to take on, or the machine's."""

    profile: str = ""
    role: str = ""
    region: str = ""


def find_credentials(identity: AwsIdentity, purpose: str, environ: Mapping[str, str] | None = None) -> AwsCredentials:
    """Return credentials that last.

    Args:
        identity: whose.
        purpose: the setting that asks for them; errors begin with it.
        environ: the process's environment where nothing else is given.

    Raises:
        FatalError: there are none, or a profile or role is asked for without botocore, or AWS refuses it.
        RetriableError: who gives them does not answer.
    """
    try:
        importlib.import_module("botocore.session")
    except ImportError:
        return _from_environ(identity, purpose, os.environ if environ is None else environ)
    with _map_botocore_errors(purpose):
        return _holder_for(identity).get(purpose)


def is_aws_busy(response: Mapping[str, Any]) -> bool:
    """Tell by an answer that is an error whether the same request may succeed later."""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return response.get("Error", {}).get("Code", "") in _BUSY or status >= _SERVER_ERROR


def forget_credentials(identity: AwsIdentity) -> None:
    """Look for an identity's credentials anew, and take its role on anew: who checks them refuses those of now."""
    _holders.pop(identity, None)


def _from_environ(identity: AwsIdentity, purpose: str, environ: Mapping[str, str]) -> AwsCredentials:
    if identity.profile or identity.role or not all(environ.get(name) for name in _NAMES):
        raise FatalError(
            f"{purpose}: without botocore AWS credentials are those of the environment; set {' and '.join(_NAMES)}, or "
            "install botocore (pip install 'icebridge[aws]'), which finds credentials of roles, profiles, instances "
            "and containers, and renews them"
        )
    return AwsCredentials(environ[_NAMES[0]], environ[_NAMES[1]], environ.get("AWS_SESSION_TOKEN", ""))


class _CredentialsHolder:
    """One identity's credentials in this process; botocore renews those of its chain."""

    def __init__(self, identity: AwsIdentity) -> None:
        sessions: Any = importlib.import_module("botocore.session")
        self._identity = identity
        self._session = sessions.Session(profile=identity.profile or None)
        self._found: Any = None
        self._taken: tuple[AwsCredentials, float] | None = None
        self._lock = threading.Lock()

    def get(self, purpose: str) -> AwsCredentials:
        with self._lock:
            if self._identity.role:
                return self._take_role()
            self._found = self._found or self._session.get_credentials()
            if self._found is None:
                raise FatalError(
                    f"{purpose}: no AWS credentials are found, neither in the environment nor of a role; set "
                    f"{' and '.join(_NAMES)}, or give this machine or pod a role"
                )
            frozen = self._found.get_frozen_credentials()
            return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    def _take_role(self) -> AwsCredentials:
        if self._taken is None or time.time() > self._taken[1]:
            client = self._session.create_client("sts", region_name=self._identity.region or None)
            answer = client.assume_role(RoleArn=self._identity.role, RoleSessionName=_SESSION_NAME)["Credentials"]
            taken = AwsCredentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])
            self._taken = taken, answer["Expiration"].timestamp() - _ROLE_RENEW_S
        return self._taken[0]


_holders: dict[AwsIdentity, _CredentialsHolder] = {}
"""The process's credentials of each identity, shared by all of its clients."""


def _holder_for(identity: AwsIdentity) -> _CredentialsHolder:
    found = _holders.get(identity)
    return _holders.setdefault(identity, _CredentialsHolder(identity)) if found is None else found


@contextmanager
def _map_botocore_errors(purpose: str) -> Iterator[None]:
    errors: Any = importlib.import_module("botocore.exceptions")
    try:
        yield
    except errors.ClientError as error:
        if is_aws_busy(error.response):
            raise RetriableError(f"{purpose}: AWS is busy: {error}") from error
        raise FatalError(f"{purpose}: AWS refuses: {error}; check the keys, and the rights of the role") from error
    except (errors.HTTPClientError, errors.CredentialRetrievalError) as error:
        raise RetriableError(f"{purpose}: AWS credentials are not available now: {error}") from error
    except errors.BotoCoreError as error:
        raise FatalError(
            f"{purpose}: AWS credentials: {error}; check the profile and AWS's configuration files"
        ) from error
