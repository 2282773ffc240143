"""Claims about the runner's small pure parts."""

import msgspec
import pytest
from valet_protocol.events import agent
from valet_protocol.events.delta import Delta
from valet_protocol.events.facts import PermissionRule, SessionPolicy
from valet_protocol.sandbox_spec import ProviderSpec, RunnerSpec
from valet_runner import git_state, limits, message_ids, opencode_config, relay
from valet_runner.bridge_state import Chunk, Item
from valet_runner.events_stream import ChunkedBody, DataLines
from valet_runner.pacing import Pacer
from valet_runner.workspace_git import git_words


def chunk(text: str, offset: int, part: str = "p") -> Chunk:
    return Chunk(kind="text", delta=Delta(message_id="m", part_id=part, offset=offset, text=text))


def running(output: str, part: str = "p") -> agent.ToolUpdated:
    return agent.ToolUpdated(message_id="m", part_id=part, call_id="c", tool="bash", status="running", output=output)


def test_a_chunk_goes_out_at_once_when_nothing_is_unacknowledged() -> None:
    assert Pacer().offer(chunk("a", 0), now=0, backlog=0) == [chunk("a", 0)]


def test_chunks_merge_while_the_broker_is_behind_and_keep_their_order_with_all_else() -> None:
    pacer = Pacer()
    out: list[Item] = []
    for item in (chunk("a", 0), chunk("b", 1), chunk("x", 0, "q"), chunk("y", 1, "q")):
        out += pacer.offer(item, now=0, backlog=3)
    done = agent.TextCompleted(message_id="m", part_id="q", kind="text", text="xy")
    out += pacer.offer(done, now=0, backlog=3)
    assert out == [chunk("ab", 0), chunk("xy", 0, "q"), done]


def test_a_held_chunk_is_released_when_the_backlog_is_gone() -> None:
    pacer = Pacer()
    assert pacer.offer(chunk("a", 0), now=0, backlog=1) == []
    assert pacer.holds_chunk
    assert pacer.release(now=0, backlog=1) == []
    assert pacer.release(now=0, backlog=0) == [chunk("a", 0)]


def test_growing_output_goes_out_no_faster_than_its_size_allows_and_its_end_at_once() -> None:
    pacer = Pacer()
    big = "x" * limits.TOOL_OUTPUT_RATE
    assert pacer.offer(running(big), now=10.0, backlog=0) == [running(big)]
    assert pacer.offer(running(big + "y"), now=10.5, backlog=0) == []
    assert pacer.due == 11.0
    assert pacer.release(now=10.9, backlog=0) == []
    assert pacer.release(now=11.0, backlog=0) == [running(big + "y")]
    pacer.offer(running(big + "yz"), now=11.1, backlog=0)
    end = agent.ToolUpdated(message_id="m", part_id="p", call_id="c", tool="bash", status="completed")
    assert pacer.offer(end, now=11.2, backlog=0) == [end]
    assert pacer.due is None


def test_a_message_does_not_end_before_what_its_tools_said() -> None:
    pacer = Pacer()
    pacer.offer(running("x" * 100_000), now=0, backlog=0)
    pacer.offer(running("x" * 100_001), now=0.1, backlog=0)
    end = agent.MessageCompleted(message_id="m", text="")
    assert pacer.offer(end, now=0.2, backlog=0) == [running("x" * 100_001), end]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_come_out_whole_whatever_pieces_they_came_in(size: int) -> None:
    payload = b'data: {"a":1}\n\ndata: {"b":"' + b"z" * 300 + b'"}\n\n'
    wire = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (payload[:20], payload[20:21], payload[21:]))
    body, lines = ChunkedBody(), DataLines()
    out: list[bytes] = []
    for at in range(0, len(wire), size):
        out += lines.feed(body.feed(wire[at : at + size]))
    assert out == [b'{"a":1}', b'{"b":"' + b"z" * 300 + b'"}']


def test_the_relay_puts_the_token_in_the_place_of_the_clients_credentials() -> None:
    head = b"POST /model/anthropic/messages HTTP/1.1\r\nHost: x\r\nx-api-key: portal\r\nConnection: keep-alive\r\n\r\n"
    assert relay.authorised_head(head, "T") == (
        b"POST /model/anthropic/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer T\r\nConnection: close\r\n\r\n"
    )


def test_the_relay_leaves_credentials_that_are_for_the_target_of_a_proxied_request() -> None:
    head = b"GET http://example.org/ HTTP/1.1\r\nAuthorization: Basic Zm9v\r\nProxy-Authorization: Basic x\r\n\r\n"
    assert relay.authorised_head(head, "T") == (
        b"GET http://example.org/ HTTP/1.1\r\nAuthorization: Basic Zm9v\r\n"
        b"Proxy-Authorization: Bearer T\r\nConnection: close\r\n\r\n"
    )
    assert relay.authorised_head(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n", "T") == (
        b"CONNECT example.org:443 HTTP/1.1\r\nProxy-Authorization: Bearer T\r\n\r\n"
    )
    with pytest.raises(ValueError, match="unpack"):
        relay.authorised_head(b"nonsense\r\n\r\n", "T")


def test_a_response_says_that_its_connection_ends() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"
    marked = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nConnection: close\r\n\r\n"
    assert relay.closing_head(head) == marked
    assert relay.closing_head(marked) == marked


def test_gits_words_are_its_own_without_progress_and_without_passwords() -> None:
    said = (
        "Cloning into '.'...\nremote: Enumerating objects: 5, done.\rReceiving objects:  10% (1/10)\r"
        "fatal: unable to access 'https://me:s3cret@example.org/a.git/': Could not resolve host: example.org\n"
    )
    assert git_words(said) == (
        "fatal: unable to access 'https://example.org/a.git/': Could not resolve host: example.org"
    )


def test_a_listing_of_changes_is_read_with_renames_binaries_and_odd_names() -> None:
    listing = (
        b":100644 100644 aaa bbb M\0a b.txt\0"
        b":100644 100644 aaa aaa R100\0old.txt\0new.txt\0"
        b":000000 100644 000 bbb A\0pic.png\0"
        b":100644 000000 aaa 000 D\0gone.txt\0"
        b"2\t1\ta b.txt\0" + b"0\t0\t\0old.txt\0new.txt\0" + b"-\t-\tpic.png\0" + b"0\t4\tgone.txt\0"
    )
    assert [(c.path, c.status, c.additions, c.deletions) for c in git_state.parse(listing)] == [
        ("a b.txt", "modified", 2, 1),
        ("new.txt", "renamed", 0, 0),
        ("pic.png", "added", 0, 0),
        ("gone.txt", "deleted", 0, 4),
    ]


def test_no_key_and_no_token_is_in_what_opencode_is_told() -> None:
    spec = RunnerSpec(
        session_id="s",
        epoch=1,
        nats_creds="CREDS",
        portal_socket="/p",
        portal_token="TOKEN",
        workspace="/w",
        home="/h",
        repo=None,
        branch=None,
        model="anthropic/m",
        providers=[ProviderSpec(id="anthropic", builtin=True)],
        opencode="/o",
        path="/bin",
    )
    around = opencode_config.Surroundings(relay_port=1234)
    told = opencode_config.config(spec, around, policy=SessionPolicy()).decode()
    environ = opencode_config.environment(spec, around, config_file="/c", plugin_dir="/d")
    for secret in ("TOKEN", "CREDS"):
        assert secret not in told + str(environ)
    assert "http://127.0.0.1:1234/model/anthropic" in told
    assert '"models"' not in told  # OpenCode knows a built-in provider's models better


def test_a_turns_message_id_is_found_by_its_end() -> None:
    first = message_ids.user_message_id("01TURN", 1_795_000_000_000)
    later = message_ids.user_message_id("01TURN", 1_795_000_000_500)
    assert first < later
    assert message_ids.belongs_to(first, "01TURN")
    assert message_ids.belongs_to(later, "01TURN")
    assert not message_ids.belongs_to(first, "01OTHER")
    assert message_ids.user_message_id("01TURN", 0, newest=later) > later


def test_sub_agents_are_asked_as_the_policy_says() -> None:
    spec = RunnerSpec(
        session_id="s",
        epoch=1,
        nats_creds="",
        portal_socket="/p",
        portal_token="",
        workspace="/w",
        home="/h",
        repo=None,
        branch=None,
        model="a/m",
        providers=[],
        opencode="/o",
        path="/bin",
    )

    def permission(policy: SessionPolicy) -> dict[str, object]:
        return msgspec.json.decode(
            opencode_config.config(spec, opencode_config.Surroundings(relay_port=1), policy=policy)
        )["permission"]

    assert permission(SessionPolicy()) == {"question": "allow"}
    rules = [
        PermissionRule(permission="bash", pattern="git *", action="allow"),
        PermissionRule(permission="edit", action="deny"),
        PermissionRule(permission="webfetch", pattern="https://*", action="deny"),
        PermissionRule(permission="bash", pattern="git push *", action="deny"),
    ]
    told = permission(SessionPolicy(permissions="ask", permission_rules=rules))
    assert list(told.items()) == [  # the order counts
        ("*", "ask"),
        ("edit", "deny"),
        ("webfetch", "ask"),
        ("bash", {"git *": "allow", "git push *": "deny"}),
        ("question", "allow"),
    ]
