"""Objects in an S3-compatible object store. The library is loaded with the first request, not with this module.

Every call has a deadline. Texts of errors contain no key, no URL and no credential: the library's own texts do. What
the object store says is quoted.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from html import unescape
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from hookmill.domain.errors import ObjectStoreUnavailable
from hookmill.outbound.answer_text import has_part, quoted

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential, S3Store

T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0
"""The deadline of a request without a content, and the longest time without a further byte of a content."""
DOWNLOAD_SECONDS: Final = 3_600.0
"""The deadline of a whole download. The client's own speed counts, too."""
UPLOAD_BYTES_PER_SECOND_MIN: Final = 262_144
"""An upload at less than this speed fails."""
CHUNK_BYTES: Final = 262_144
"""About how many bytes of a content a chunk has."""
OBJECTS_PER_PAGE: Final = 1_000
"""The most objects that S3 lists or removes with one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreConfig:
    """Where objects are, and the credentials."""

    bucket: str
    region: str
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    endpoint_url: str | None = None
    """None: the endpoint of AWS in the region."""
    prefix: str = ""
    """The beginning of all keys, without a slash at its end."""
    has_path_style: bool = True
    """Whether URLs have the bucket in their path. Otherwise the host's name begins with it."""
    certificate_authority: bytes | None = None
    """Certificates to trust in addition to the system's, as PEM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    key: str
    changed_at: int
    """By the clock of the object store, in µs since 1970."""


class ObjectStore:
    """A bucket. Threads may share it; a process that was forked may not.

    Methods raise `ObjectStoreUnavailable`.
    """

    def __init__(self, config: ObjectStoreConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._clients: dict[tuple[float, float | None], S3Store] = {}
        """By their deadlines: of the whole request, and of the next byte."""

    @property
    def prefix(self) -> str:
        return self._config.prefix

    def put(self, key: str, content: bytes) -> None:
        """Store an object in one request, so that no part of it can exist."""
        # Whole minutes, so that few clients are needed.
        seconds = 60.0 * (1 + len(content) // (60 * UPLOAD_BYTES_PER_SECOND_MIN))
        store = self._client(seconds + ANSWER_SECONDS)
        self._ask("upload", lambda obstore: obstore.put(store, key, content, use_multipart=False))

    def read(self, key: str) -> Iterator[bytes] | None:
        """The content in chunks. The first one has been read when this returns. None if there is no such object."""
        store = self._client(DOWNLOAD_SECONDS, ANSWER_SECONDS)
        chunks = self._ask(
            "download", lambda obstore: iter(obstore.get(store, key).stream(min_chunk_size=CHUNK_BYTES)), missing=None
        )
        if chunks is None:
            return None
        rest = self._rest_of(chunks)
        return chain([next(rest, b"")], rest)

    def _rest_of(self, chunks: Iterator[Any]) -> Iterator[bytes]:
        while (chunk := self._ask("download", lambda _: next(chunks, None))) is not None:
            yield bytes(chunk)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects. Those that don't exist are ignored."""
        if keys:
            store = self._client(ANSWER_SECONDS)
            self._ask("removal", lambda obstore: obstore.delete(store, list(keys)), missing=None)

    def list_page(self, prefix: str, after: str | None) -> list[ListedObject]:
        """Up to `OBJECTS_PER_PAGE` objects below a prefix, in the order of their keys, from the key `after` on."""
        store = self._client(ANSWER_SECONDS)

        def first_page(obstore: Any) -> Any:
            return next(iter(obstore.list(store, prefix, offset=after, chunk_size=OBJECTS_PER_PAGE)), [])

        listed = self._ask("list", first_page)
        return [
            ListedObject(key=each["path"], changed_at=int(each["last_modified"].timestamp() * 1e6)) for each in listed
        ]

    def _ask(self, what: str, request: Callable[[Any], T], **when_missing: T) -> T:
        """The result of a request; if the object is missing, `when_missing`."""
        import obstore

        try:
            return request(obstore)
        except FileNotFoundError as error:
            if when_missing and "NoSuchBucket" not in str(error):
                return when_missing["missing"]
            raise self._unavailable_error(what, error) from None
        except BaseException as error:
            # A panic of the library is no `Exception`. These three are not the library's.
            if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
                raise
            raise self._unavailable_error(what, error) from None

    def _unavailable_error(self, what: str, error: BaseException) -> ObjectStoreUnavailable:
        text = str(error)
        status = re.search(r"status code: (\d{3})\b", text)
        code = re.search(r"<Code>(\w{1,64})</Code>", text)
        if status is None:
            reason = "did not answer in time" if "TimedOut" in text or "Timeout" in text else "can't be reached"
        else:
            keys = [self._config.access_key_id, self._config.secret_access_key]
            reason = f"answered {status[1]}{f' {code[1]}' if code and not has_part(code[1], keys) else ''}"
            message = re.search(r"<Message>([^<]{1,1000})</Message>", text)
            if message is not None and (words := quoted(unescape(message[1]), keys)) is not None:
                reason += f": {words}"
        advice = "Check that it works, and the settings whose names begin with s3_."
        if status is not None and status[1] in {"401", "403"}:
            advice = "Check s3_access_key_id and s3_secret_access_key, and what this key may do in the bucket."
        elif "NoSuchBucket" in text:
            advice = "Create the bucket, or correct s3_bucket."
        return ObjectStoreUnavailable(f"The object store {reason} ({what}, bucket {self._config.bucket}). {advice}")

    def _client(self, seconds: float, silent_seconds: float | None = None) -> "S3Store":
        from obstore.store import S3Store

        deadlines = seconds, silent_seconds
        config = self._config
        with self._lock:
            if deadlines not in self._clients:
                endpoint = _endpoint(config)
                options: ClientConfig = {
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
                    "timeout": timedelta(seconds=seconds),
                }
                if silent_seconds is not None:
                    options["read_timeout"] = timedelta(seconds=silent_seconds)
                if config.certificate_authority is not None:
                    options["root_certificate"] = config.certificate_authority
                # Everything is passed explicitly: variables such as AWS_ENDPOINT_URL_S3 could replace defaults.
                try:
                    self._clients[deadlines] = S3Store(
                        config.bucket,
                        config={
                            "aws_endpoint_url_s3": endpoint,
                            "endpoint": endpoint,
                            "region": config.region,
                            "skip_signature": False,
                            "virtual_hosted_style_request": not config.has_path_style,
                        },
                        credential_provider=self._credentials,
                        client_options=options,
                        retry_config={"max_retries": 1, "retry_timeout": timedelta(seconds=CONNECT_SECONDS)},
                    )
                except Exception:
                    raise ObjectStoreUnavailable(
                        "The settings whose names begin with s3_ can't be used. Check s3_endpoint_url and s3_ca_file."
                    ) from None
            return self._clients[deadlines]

    def _credentials(self) -> "S3Credential":
        return {
            "access_key_id": self._config.access_key_id,
            "secret_access_key": self._config.secret_access_key,
            "token": None,
            "expires_at": None,
        }


def _endpoint(config: ObjectStoreConfig) -> str:
    url = config.endpoint_url or f"https://s3.{config.region}.amazonaws.com"
    if config.has_path_style:
        return url
    parts = urlsplit(url)
    return parts._replace(netloc=f"{config.bucket}.{parts.netloc}").geturl()
