"""How much a tool takes, as types of its fields: what is over is refused before anything is asked of the platform, and
an agent sees the limit in the tool's schema."""

from typing import Annotated

from msgspec import Meta

Id = Annotated[str, Meta(min_length=1, max_length=128)]
"""The id of something the platform keeps: ours have 26 characters, those of other systems up to a hundred."""

Name = Annotated[str, Meta(min_length=1, max_length=200)]
"""What people read in one line: titles of pull requests and sessions stay below."""

Label = Annotated[str, Meta(min_length=1, max_length=64)]
"""A word by which things are grouped."""

Text = Annotated[str, Meta(min_length=1, max_length=64_000)]
"""What is said: a long prompt; the broker carries 1 MB in one message, and JSON may need six bytes a character."""

Note = Annotated[str, Meta(min_length=1, max_length=8_000)]
"""A paragraph or two for people: more is not read."""

Fact = Annotated[str, Meta(min_length=1, max_length=16_000)]
"""One thing to remember: what is found is put into a model's context, several at once."""

Few = Annotated[int, Meta(ge=1, le=50)]
"""How many of what is large: each may be a whole text."""

Page = Annotated[int, Meta(ge=1, le=200)]
"""How many of what is small: that many lines are still read."""

Number = Annotated[int, Meta(ge=1)]
"""A number that counts from one."""

Slug = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,79}$")]
"""A name in URLs and commands."""

Path = Annotated[str, Meta(min_length=1, max_length=4_096)]
"""A file's path: Linux takes no longer one."""

Url = Annotated[str, Meta(pattern="^https?://", max_length=4_096)]
"""A page of the web; browsers and servers agree on no more."""

After = Annotated[int, Meta(ge=0)]
"""A cursor that is a sequence."""

Port = Annotated[int, Meta(ge=1, le=65_535)]
"""A TCP port."""

TunnelName = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""Part of a URL, without anything that must be escaped there; the gateway takes no other."""

ImageData = Annotated[str, Meta(min_length=4, max_length=14_000_000)]
"""Base64 of the 10 MB an image may have, and a little."""
