"""The multipart uploads of the scripted S3 server, as S3 has them: nothing is visible before the completion."""

import re
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from tests.support.scripted_s3 import Request

MARK = "x-amz-meta-kafscale-upload"


@dataclass(slots=True, kw_only=True)
class Upload:
    """One upload and the parts that came, by number."""

    key: str
    mark: str
    parts: dict[int, bytes] = field(default_factory=dict)


class ScriptedUploads:
    """Carries out the requests of uploads. Answers are a status and a body, None for other requests' methods."""

    def __init__(self, objects: dict[str, bytes], *, ignores_conditions: bool) -> None:
        self.under_way: dict[str, Upload] = {}
        self.marks: dict[str, str] = {}
        self._objects = objects
        self._ignores_conditions = ignores_conditions
        self._ids = count(1)

    def operation(self, method: str, query: str) -> str | None:
        """The kind of the request."""
        asked = parse_qs(query, keep_blank_values=True)
        if "uploadId" not in asked:
            return {("POST", True): "begin", ("HEAD", False): "mark"}.get((method, "uploads" in asked))
        return {"PUT": "part", "POST": "complete", "DELETE": "abort"}.get(method)

    def carry_out(self, operation: str, request: "Request") -> tuple[int, str]:
        """The status and the body, or the code of an error."""
        asked = parse_qs(request.query)
        if operation == "begin":
            upload = f"upload-{next(self._ids)}"
            self.under_way[upload] = Upload(key=request.key, mark=request.headers.get(MARK, ""))
            return (
                200,
                f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>",
            )
        upload = asked["uploadId"][0]
        if upload not in self.under_way:
            return 404, "NoSuchUpload"
        if operation == "abort":
            del self.under_way[upload]
            return 204, ""
        if operation == "part":
            self.under_way[upload].parts[int(asked["partNumber"][0])] = request.body
            return 200, ""
        return self._complete(upload, request)

    def _complete(self, name: str, request: "Request") -> tuple[int, str]:
        upload = self.under_way[name]
        is_conditional = request.headers.get("if-none-match") == "*" and not self._ignores_conditions
        if is_conditional and upload.key in self._objects:
            return 412, "PreconditionFailed"
        numbers = [int(number) for number in re.findall(r"<PartNumber>(\d+)<", request.body.decode())]
        if numbers != sorted(numbers) or any(number not in upload.parts for number in numbers):
            return 400, "InvalidPart"
        self._objects[upload.key] = b"".join(upload.parts[number] for number in numbers)
        self.marks[upload.key] = upload.mark
        del self.under_way[name]
        return 200, completed(upload.key)


def completed(key: str) -> str:
    """The answer to a completion."""
    return (
        f'<CompleteMultipartUploadResult><Key>{key}</Key><ETag>"1-1"</ETag></CompleteMultipartUploadResult>'
    )
