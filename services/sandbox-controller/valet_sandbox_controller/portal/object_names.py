"""Which objects a sandbox may read and write. Pure."""

from valet_service import object_store

from valet_sandbox_controller.errors import BadPortalRequest

PATH = "/objects/"


def permitted(session_id: str, method: str, target: str) -> str:
    """The name of the object that `<method> /objects/<name>` is about, for a sandbox of that session.

    A sandbox reads what is its own session's, and writes only its saved work and the images its agent shows:
    attachments are people's. Raises `BadPortalRequest` (400, 403, 405).
    """
    if method not in ("GET", "PUT"):
        raise BadPortalRequest(405, "objects are read with GET and written with PUT")
    name = target.removeprefix(PATH)
    if name == target or not object_store.is_name(name):
        raise BadPortalRequest(400, "this is no object's name: encoded characters, `..`, `//` and queries are refused")
    own = f"sessions/{session_id}/"
    if not name.startswith(own):
        raise BadPortalRequest(403, f"a sandbox reads and writes only its own session's objects: below {own}")
    if method == "PUT" and not name.startswith((f"{own}saved/", f"{own}images/")):
        raise BadPortalRequest(403, f"a sandbox writes only its work and its images: below {own}saved/ or {own}images/")
    return name
