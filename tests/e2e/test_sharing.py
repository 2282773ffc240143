"""Owner, collaborators and viewers; links that can be revoked."""

import uuid

from harness import checks
from harness.platform import Platform


def user(platform: Platform) -> tuple[str, str]:
    """A further user: id and token."""
    made = platform.request("POST", "/api/users", json={"name": f"u{uuid.uuid4().hex[:12]}"}).json()
    return made["id"], made["token"]


def test_roles_decide_who_may_read_prompt_and_share(platform: Platform) -> None:
    session = platform.create(title="shared")["id"]
    at = f"/api/sessions/{session}"
    viewer, viewer_token = user(platform)
    collaborator, collaborator_token = user(platform)
    with platform.client(viewer_token) as client:
        assert client.get(at).status_code == 404
    assert platform.request("PUT", f"{at}/participants/{viewer}", json={"role": "viewer"}).status_code == 200
    assert (
        platform.request("PUT", f"{at}/participants/{collaborator}", json={"role": "collaborator"}).status_code == 200
    )
    with platform.client(viewer_token) as client:
        assert client.get(at).json()["role"] == "viewer"
        assert session in [item["id"] for item in client.get("/api/sessions").json()["items"]]
        refused = client.post(f"{at}/messages", json={"content": "say no"})
        assert (refused.status_code, refused.json()["code"]) == (403, "role_too_low")
    with platform.follow(session) as follower, platform.client(collaborator_token) as client:
        assert client.post(f"{at}/messages", json={"content": "say by a collaborator"}).status_code == 202
        follower.wait_type("agent.turn_ended")
        assert client.put(f"{at}/participants/{viewer}", json={"role": "collaborator"}).status_code == 403
    messages = platform.messages(session)
    assert messages[0]["author"] == collaborator
    assert "by a collaborator" in checks.assistant_text(messages)


def test_a_revoked_link_ends_the_part_of_those_who_came_by_it(platform: Platform) -> None:
    session = platform.create(title="linked")["id"]
    at = f"/api/sessions/{session}"
    _, token = user(platform)
    link = platform.request("POST", f"{at}/links", json={"role": "viewer"}).json()
    with platform.client(token) as client:
        assert client.post("/api/join", json={"token": link["token"]}).json()["id"] == session
        assert client.get(at).status_code == 200
    assert platform.request("DELETE", f"{at}/links/{link['link_id']}").status_code == 200
    with platform.client(token) as client:
        assert client.get(at).status_code == 404
        assert client.post("/api/join", json={"token": link["token"]}).status_code == 404
