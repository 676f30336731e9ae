"""Sign one S3 request (AWS Signature Version 4), so that the demo needs no S3 driver."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_ALGORITHM = "AWS4-HMAC-SHA256"
_SIGNED = "host;x-amz-content-sha256;x-amz-date"


def signed_headers(
    *,
    method: str,
    host: str,
    path: str,
    body: bytes,
    region: str,
    access_key: str,
    secret_key: str,
    now: datetime,
) -> dict[str, str]:
    """The headers that make this request the key owner's; ``path`` must need no escaping."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(body).hexdigest()
    canonical = (
        f"{method}\n{path}\n\n"
        f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{moment}\n\n"
        f"{_SIGNED}\n{digest}"
    )
    to_sign = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return {
        "Host": host,
        "x-amz-date": moment,
        "x-amz-content-sha256": digest,
        "Authorization": (
            f"{_ALGORITHM} Credential={access_key}/{scope}, "
            f"SignedHeaders={_SIGNED}, Signature={signature}"
        ),
    }
