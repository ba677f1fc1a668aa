"""Tells what a storage's error means: who may try again, and what a person has to do.

The packages behind fsspec raise some forty classes; they are known by name here, so that none of
them has to be imported.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from enum import Enum

from tfrun.job.errors import TfrunError, UsageError
from tfrun.storage.url import EXTRAS, scheme_of


class Kind(Enum):
    """What went wrong.

    TRANSIENT is worth another try (throttled, a broken connection, no answer); the others are not.
    """

    MISSING = "there is no such bucket"
    DENIED = "access is denied"
    CREDENTIALS = "there are no valid credentials"
    TRANSIENT = "the storage does not answer"
    OTHER = "the storage refuses"


_CREDENTIALS = (
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
    *("ProfileNotFound", "NoAuthTokenError", "TokenRetrievalError", "SSOTokenLoadError"),
    *("UnauthorizedSSOTokenError", "DefaultCredentialsError", "RefreshError"),
)
_BROKEN = (
    *("ClientConnectionError", "ClientPayloadError", "ServerTimeoutError", "HTTPClientError"),
    *("ProxyError", "ChunkedEncodingError", "ConnectionError", "Timeout", "SSLError"),
    *("ConnectionClosedError", "ResponseStreamingError", "IncompleteReadError", "ChecksumError"),
    *("TransportError", "HTTPException", "RetryError"),
)
_BROKEN_NUMBERS = {
    *(errno.EBUSY, errno.ETIMEDOUT, errno.EAGAIN, errno.EPIPE, errno.ENETUNREACH),
    *(errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EHOSTUNREACH),
    getattr(errno, "EREMOTEIO", errno.EIO),
}
# Of AWS, which s3fs hands on in the text alone; some other servers of S3 say others for the same.
_WRONG_KEYS = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"),
    *(
        "InvalidClientTokenId",
        "TokenRefreshRequired",
        "security token",
        "in our records",
    ),
)
_THROTTLED = (
    "SlowDown",
    "Throttl",
    "TooManyRequests",
    "reduce your request rate",
    "RequestTimeout",
)
_FIXES = {
    Kind.MISSING: "Create the bucket, or name another one",
    Kind.DENIED: "Give these credentials the right to list, read, write and remove objects there",
    Kind.TRANSIENT: "Check that the machine can reach it, and that the address is right "
    "(AWS_ENDPOINT_URL, STORAGE_EMULATOR_HOST)",
    Kind.OTHER: "Check the URL, and the address of the storage (AWS_ENDPOINT_URL, "
    "STORAGE_EMULATOR_HOST)",
}
_SIGN_IN = {
    "s3": "Provide them as for the AWS command line: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "AWS_PROFILE, ~/.aws, or the machine's role",
    "gs": "Provide them as for gcloud: GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth "
    "application-default login`, or the machine's service account",
}


def kind_of(error: BaseException) -> Kind:
    """Returns what an error of fsspec and what is behind it means."""
    for one in _causes(error):
        if (kind := _kind_of_one(one)) is not Kind.OTHER:
            return kind
    return Kind.OTHER


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__


def _kind_of_one(error: BaseException) -> Kind:
    names = {cls.__name__ for cls in type(error).__mro__}
    text, code = str(error), str(getattr(error, "code", ""))
    if names & set(_CREDENTIALS) or any(word in text for word in _WRONG_KEYS) or code == "401":
        return Kind.CREDENTIALS
    if isinstance(error, FileNotFoundError) or code == "404":
        return Kind.MISSING
    if isinstance(error, PermissionError) or code == "403" or text.startswith("Forbidden:"):
        return Kind.DENIED  # the last is gcsfs's
    if code == "429" or (code.startswith("5") and len(code) == 3):
        return Kind.TRANSIENT
    if any(word in text for word in _THROTTLED) or names & set(_BROKEN):
        return Kind.TRANSIENT
    if isinstance(error, TimeoutError | ConnectionError | asyncio.TimeoutError):
        return Kind.TRANSIENT
    if isinstance(error, OSError) and error.errno in _BROKEN_NUMBERS:
        return Kind.TRANSIENT
    return Kind.OTHER


def unusable(url: str, error: BaseException, *, where: str = "") -> TfrunError:
    """Returns TFRUN-704; for `where`, an option, it is a usage error: nothing has been started."""
    kind = kind_of(error)
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    fix = _SIGN_IN[scheme_of(url)] if kind is Kind.CREDENTIALS else _FIXES[kind]
    what = f"{url} cannot be used: {kind.value} ({said:.300})"
    if where:
        return UsageError("TFRUN-704", what, where=where, fix=fix)
    return TfrunError("TFRUN-704", what, fix=fix)


def not_installed(url: str, error: ImportError) -> UsageError:
    extra, package = EXTRAS[scheme_of(url)]
    return UsageError(
        "TFRUN-704",
        f"{url} cannot be used: {package} is not installed ({error})",
        where=url,
        fix=f"pip install 'tfrun[{extra}]', on every machine of the job",
    )
