"""Tells URLs of object storage from paths, and refuses those that nobody here can read. Pure."""

from __future__ import annotations

import re

from tfrun.job.errors import UsageError

# By scheme: the extra of tfrun that brings its package, and the package.
EXTRAS = {"s3": ("s3", "s3fs"), "gs": ("gcs", "gcsfs")}
_SAME = {"s3a": "s3", "gcs": "gs"}
_FILE = "file://"
# One slash too few: it would be a directory here that is called "s3:".
_SLIP = re.compile(r"(?:s3a?|gs|gcs|hdfs|https?|file):(?!//)", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Whether it names a place in object storage, and not a path."""
    return "://" in text


def lacks_slash(text: str) -> bool:
    """Whether it looks like a URL, but is a path: "s3:/bucket"."""
    return bool(_SLIP.match(text))


def scheme_of(url: str) -> str:
    """Returns "s3" or "gs" for what `normal` has returned."""
    return url.partition("://")[0]


def normal(text: str, *, where: str, is_pattern: bool = False) -> str:
    """Returns a path, also of a file:// URL; or a URL in its one form, with no slash at its end.

    Args:
      text: what a person has stated.
      where: the option or function in which it stands.
      is_pattern: a `?` stands for any character.

    Raises:
      UsageError: TFRUN-105, when it is another kind of URL, or names no bucket.
    """
    if lacks_slash(text):
        raise _refused(text, "lacks a slash after its colon", where)
    if not is_url(text):
        return text
    if text.lower().startswith(_FILE):
        path = text[len(_FILE) :].removeprefix("localhost")
        if not path.startswith("/"):
            raise _refused(text, "is not a file URL with an absolute path", where)
        return path
    scheme, _, rest = text.partition("://")
    scheme = _SAME.get(scheme.lower(), scheme.lower())
    parts = rest.rstrip("/").split("/")
    if scheme not in EXTRAS:
        raise _refused(text, "is not a URL that tfrun can use", where)
    if not all(parts) or set("#" if is_pattern else "?#") & set(rest) or {".", ".."} & set(parts):
        raise _refused(text, "names no place in a bucket", where)
    return f"{scheme}://{'/'.join(parts)}"


def _refused(text: str, why: str, where: str) -> UsageError:
    return UsageError(
        "TFRUN-105",
        f"{text!r:.200} {why}",
        where=where,
        expected="a path, file:///PATH, s3://BUCKET/PATH or gs://BUCKET/PATH",
    )
