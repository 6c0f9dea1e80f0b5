"""Credentials in texts for people: in an error or a log line other people read them."""

import re

MASK = "***"
_MAX_SHOWN_CHARACTERS = 300
# user:password@ of a URL; a password may hold anything but a slash and a blank.
_USER_INFORMATION = re.compile(r'(\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/"]*@')
# Those of JDBC URLs and of signed requests.
_PARAMETER = re.compile(
    r"([?&;](?:password|passwd|pwd|secret|token|access_token|sig|X-Amz-(?:Credential|Signature|Security-Token))=)"
    r"[^&;\s'\"]+",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """The text with `***` in place of the credentials in its URLs."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(rf"\1{MASK}", _USER_INFORMATION.sub(rf"\1{MASK}@", text))


def shown_value(text: str) -> str:
    """A setting's value between quotes, for an error: without credentials, with or without a scheme, and cut."""
    parts = (without_credentials(part) for part in text.split(","))
    masked = ",".join(
        part if "://" in part or "@" not in part else f"{MASK}@{part.rpartition('@')[2]}" for part in parts
    )
    cut = masked if len(masked) <= _MAX_SHOWN_CHARACTERS else masked[:_MAX_SHOWN_CHARACTERS] + "..."
    return repr(cut)
