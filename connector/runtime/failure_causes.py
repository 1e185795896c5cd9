"""the exceptions behind a failed call -> whether the same call may succeed later, by what a store or database said.

The rules know Java's exceptions by their simple names and both Java's and Arrow's messages. They are asked of the whole
chain of causes: a wrapper such as RuntimeIOException says nothing of what happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import attrs


@attrs.frozen
class Cause:
    """One exception of a chain: its class's simple name and its message."""

    name: str
    message: str


_PERMANENT_NAMES = frozenset(
    {
        "ClassNotFoundException",
        "NoClassDefFoundError",
        "NoSuchMethodError",
        "UnsupportedClassVersionError",
        "UnsupportedFileSystemException",
        "NoSuchBucketException",
        "AccessControlException",
        "AccessDeniedException",
        "ForbiddenException",
        "NotAuthorizedException",
        "CertificateException",
        "SunCertPathBuilderException",
        "SQLInvalidAuthorizationSpecException",
        "SSLPeerUnverifiedException",
    }
)
_PERMANENT = re.compile(
    r"""No\ FileSystem\ for\ scheme | No\ suitable\ driver | Unable\ to\ load\ (?:credentials|region)
    | class\ \S+\ not\ found | Cannot\ (?:initialize|find\ constructor|load)\ \S*(?:FileIO|Catalog)
    | (?:status\ code:?|HTTP\ status|status=)\s*(?:301|401|403)\b | \b(?:401\ Unauthorized|403\ Forbidden)
    | bucket\ does\ not\ exist | bucket\ is\ not\ valid | NoSuchBucket | NO_SUCH_BUCKET | container\ does\ not\ exist
    | ContainerNotFound | FilesystemNotFound | PermanentRedirect | AuthorizationHeaderMalformed
    | AccessDenied | ACCESS_DENIED | Permission\ denied | InvalidAccessKeyId | INVALID_ACCESS_KEY_ID
    | SignatureDoesNotMatch | SIGNATURE_DOES_NOT_MATCH | INVALID_SIGNATURE | AuthenticationFailed
    | InvalidAuthenticationInfo | No\ AWS\ credentials | PKIX\ path | CERTIFICATE_VERIFY_FAILED
    | Unsupported\ or\ unrecognized\ SSL\ message
    | is\ not\ authorized\ to\ perform | Status\((?:PERMISSION_DENIED|UNAUTHENTICATED)\b
    | Azure\ Error:\ \[(?:Authorization\w*|InsufficientAccountPermissions|AccountIsDisabled)\] | Read-only\ file\ system
    | password\ authentication\ failed | Access\ denied\ for\ user | no\ pg_hba\.conf\ entry | Unknown\ database
    | Public\ Key\ Retrieval\ is\ not\ allowed | \[SQLITE_(?:READONLY|NOTADB|CORRUPT|CANTOPEN|PERM|AUTH)\w*\]
    | (?:database|role)\ "[^"]*"\ does\ not\ exist | SQLSTATE\ (?:28\w{3}|3D000|42501)""",
    re.VERBOSE | re.IGNORECASE,
)
_EXPIRED_CREDENTIALS = re.compile(
    r"Expired_?(?:Token|Credentials?)|(?:token|credentials?|session|signature)\b[^.;]{0,40}\bexpired", re.IGNORECASE
)
_TRANSIENT_NAMES = frozenset(
    {
        "AbortedException",
        "ApiCallAttemptTimeoutException",
        "ApiCallTimeoutException",
        "BlockMissingException",
        "BrokenPipeError",
        "ClientConnectionError",
        "ClientConnectorError",
        "ClosedChannelException",
        "ConnectionAbortedError",
        "ConnectException",
        "ConnectTimeoutError",
        "ConnectTimeoutException",
        "ConnectionClosedError",
        "ConnectionClosedException",
        "ConnectionError",
        "ConnectionPoolTimeoutException",
        "ConnectionResetError",
        "EndpointConnectionError",
        "HttpHostConnectException",
        "HttpTimeoutException",
        "NoHttpResponseException",
        "NoRouteToHostException",
        "PrematureCloseException",
        "ReadTimeout",
        "ReadTimeoutError",
        "RetryableException",
        "ServerDisconnectedError",
        "ServerTimeoutError",
        "ServiceRequestError",
        "ServiceResponseError",
        "SocketException",
        "SafeModeException",
        "SocketTimeoutException",
        "SQLRecoverableException",
        "SQLTransientConnectionException",
        "SQLTransientException",
        "StandbyException",
        "TTransportException",
        "TimeoutError",
        "TimeoutException",
        "UnknownHostException",
    }
)
_TRANSIENT = re.compile(
    r"""(?:status\ code:?|HTTP\ status|status=)\s*(?:408|429|5\d\d)\b | Unable\ to\ execute\ HTTP\ request
    | \b(?:429\ Too\ Many\ Requests|500\ Internal\ Server|502\ Bad\ Gateway|503\ Service|504\ Gateway)
    | NETWORK_CONNECTION | REQUEST_TIMEOUT | SLOW_?DOWN | SERVICE_UNAVAILABLE | INTERNAL_FAILURE | THROTTLING
    | \((?:ServiceUnavailable|InternalError|RequestTimeout\w*|Throttling\w*)\)
    | Status\((?:UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ABORTED|INTERNAL)\b
    | Azure\ Error:\ \[(?:ServerBusy|OperationTimedOut|InternalError)\]
    | Connection\ (?:reset|refused|timed\ out) | Couldn't\ (?:connect|resolve) | Could\ not\ connect
    | Fail\ to\ get\ a\ new\ connection | Broken\ pipe | different\ checksum\ than\ expected
    | Could\ not\ obtain\ block | in\ state\ standby | Name\ node\ is\ in\ safe\ mode
    | Too\ many\ open\ files | Stale\ (?:NFS\ )?file\ handle | Input/output\ error | Transport\ endpoint\ is\ not
    | No\ space\ left\ on\ device | Disk\ quota\ exceeded
    | SQLSTATE\ (?:08\w{3}|53\w{3}|57P\d\d)""",
    re.VERBOSE | re.IGNORECASE,
)

_MISSING_FILE_NAMES = frozenset(
    {"FileNotFoundError", "FileNotFoundException", "NoSuchFileException", "NoSuchKeyException", "NotFoundException"}
)
_MISSING_FILE = re.compile(r"\bNO_?SUCH_?KEY\b", re.IGNORECASE)

_NAMED_EXCEPTION = re.compile(
    r"^(?:.*(?:Caused by: |: ))?(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception))(?:\([\w.$]+\))?(?:: ([^\n]*)|[ \t]*$)",
    re.MULTILINE,
)


def causes_in(text: str) -> Iterator[Cause]:
    """The exceptions that a report of Spark's names, Java's and Python's, in its order."""
    for name, message in _NAMED_EXCEPTION.findall(text):
        yield Cause(name, message)


def causes_of(error: BaseException) -> Iterator[Cause]:
    """The exceptions behind one of Python's, itself first: what it was raised from, else what it came up in."""
    seen = set[int]()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield Cause(type(at).__name__, str(at))
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def is_permanent(causes: Iterable[Cause]) -> bool:
    """Tell whether no retry can mend this: a class, bucket or right that is missing, credentials that are wrong.

    Credentials that have expired are another matter: the next load of the table may bring new ones.
    """
    causes = tuple(causes)
    if any(_EXPIRED_CREDENTIALS.search(cause.message) for cause in causes):
        return False
    return any(cause.name in _PERMANENT_NAMES or _PERMANENT.search(cause.message) for cause in causes)


def is_transient(causes: Iterable[Cause]) -> bool:
    """Tell whether a store or database is away or busy, or credentials are out of date: the same may succeed later.

    A host's name that nobody knows counts too: names come and go with what they are of.
    """
    causes = tuple(causes)
    return not is_permanent(causes) and any(
        cause.name in _TRANSIENT_NAMES or _TRANSIENT.search(cause.message) or _EXPIRED_CREDENTIALS.search(cause.message)
        for cause in causes
    )


def find_missing_file(causes: Iterable[Cause]) -> Cause | None:
    """Return the last cause that tells of a file that is not there, None without one.

    To Java one that cannot be opened now is missing too, whatever the system says of it: ask `is_transient` first.
    """
    missing = [cause for cause in causes if cause.name in _MISSING_FILE_NAMES or _MISSING_FILE.search(cause.message)]
    return missing[-1] if missing else None
