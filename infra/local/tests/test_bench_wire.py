"""Claims about how delays are read off a stream."""

from valet_local.bench import wire
from valet_local.bench.wire import Piece, delays_ms
from valet_local.client.endpoint import Endpoint


def test_a_stamp_counts_when_the_piece_that_completes_it_has_come() -> None:
    pieces = [Piece(2_000_000, b'data: {"text":"@10000'), Piece(5_000_000, b'00 "}\n\n')]
    assert delays_ms(pieces) == [4.0]


def test_a_stamp_that_comes_again_counts_once() -> None:
    pieces = [Piece(3_000_000, b"@1000000 "), Piece(9_000_000, b"@1000000 @2000000 ")]
    assert delays_ms(pieces) == [2.0, 7.0]


def test_stamps_that_were_joined_on_the_way_each_count() -> None:
    assert delays_ms([Piece(5_000_000, b"@1000000 @2000000 @3000000 ")]) == [4.0, 3.0, 2.0]


def test_a_request_says_how_long_its_body_is() -> None:
    endpoint = Endpoint(url="http://127.0.0.1:8700", token="secret")
    said = wire.request(endpoint, "POST", "/x", b"{}").decode()
    assert said.startswith("POST /x HTTP/1.1\r\nhost: 127.0.0.1:8700\r\n")
    assert "authorization: Bearer secret\r\n" in said
    assert said.endswith("content-length: 2\r\n\r\n{}")
