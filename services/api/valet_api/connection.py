"""The HTTP server's connection, made so that it can be given away while its client waits for the answer."""

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from valet_api import limits

SCOPE_KEY = "valet.connection"


class Connection(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol. It is found in the ASGI scope under `extensions`; an upgrade request is a request
    like any other, and the route decides what becomes of it.
    """

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > limits.HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("headers too large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {SCOPE_KEY: self}  # type: ignore[typeddict-item]

    def on_headers_complete(self) -> None:
        self._head_bytes, self._in_head = 0, False
        super().on_headers_complete()
        if self.parser is not None and self.parser.should_upgrade():
            self.cycle.keep_alive = False  # the parser cannot go on after such a request

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head = True  # of the next request

    def _should_upgrade(self) -> bool:
        return False

    def _unsupported_upgrade_warning(self) -> None:
        return

    def send_400_response(self, msg: str) -> None:
        body = (
            b'{"type":"about:blank","title":"Bad request","status":400,"code":"malformed_request",'
            b'"detail":"This is not a valid HTTP/1.1 request, or its headers are too large."}'
        )
        head = b"content-type: application/problem+json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def descriptor(self) -> int:
        """The socket's file descriptor; nothing is read from it from here on."""
        self.flow.pause_reading()
        return self.transport.get_extra_info("socket").fileno()

    def keep(self) -> None:
        """It was not given away after all."""
        self.flow.resume_reading()

    def let_go(self) -> None:
        """Somebody else has the socket: close our descriptor of it without a word on the wire."""
        self.cycle.disconnected = True  # the server must neither answer nor complain that nobody did
        self.transport.abort()

    @property
    def gone(self) -> bool:
        """Whether the client has hung up."""
        return self.cycle.disconnected or self.transport.is_closing()


def of(scope: Any) -> Connection:
    """The connection a request came on."""
    return scope["extensions"][SCOPE_KEY]
