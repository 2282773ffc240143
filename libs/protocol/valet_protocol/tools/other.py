"""What the agent shows and asks of its own sandbox. Answered there."""

from valet_protocol.requests.base import Reply
from valet_protocol.tools import limits
from valet_protocol.tools.base import LONG, WRITE, Tool


class ImageStored(Reply, frozen=True, kw_only=True):
    """The picture is stored and in the conversation."""

    image_id: str
    """Made from this call's `request_id`."""
    object: str
    """Its name in the object store."""
    media_type: str
    """As its content says."""
    bytes: int
    sha256: str
    """Hexadecimal."""


class ShowImage(Tool, frozen=True, kw_only=True):
    """Show people a picture in the conversation, e.g. a screenshot of what you have built. If you can see
    pictures, you see it too.

    Give either `path` or `data`. PNG, JPEG, GIF and WebP, 10 MB at most.
    """

    name = method = "show_image"
    category = "other"
    route = "POST /api/image"
    reply = ImageStored
    timeout = LONG
    served_by = "runner"

    path: limits.Path | None = None
    """A file below the workspace, relative to it or absolute."""
    data: limits.ImageData | None = None
    """The picture itself, in base64."""
    caption: limits.Note | None = None
    """What is to be seen on it."""


class GitState(Reply, frozen=True, kw_only=True):
    """The working copy as it is now."""

    branch: str | None
    """None for a detached head."""
    head_commit: str | None
    """None before the first commit."""
    base_commit: str | None
    """Where the session started."""
    files: list[str]
    """Files that differ from the session's base, untracked ones included; the first hundred."""
    files_changed: int
    """How many differ in all."""


class ReportGitState(Tool, frozen=True, kw_only=True):
    """Tell people on which branch and commit the work is. Call it after you have changed branch or committed.

    At the end of each turn it is reported by itself.
    """

    name = method = "report_git_state"
    category = "other"
    route = "POST /api/git-state"
    reply = GitState
    timeout = WRITE
    served_by = "runner"


class Transcript(Reply, frozen=True, kw_only=True):
    """What is said in a recording."""

    text: str


class TranscribeAudio(Tool, frozen=True, kw_only=True):
    """Write down what is said in a recording, where this sandbox has speech recognition."""

    name = method = "transcribe_audio"
    category = "other"
    route = "POST /api/transcribe"
    reply = Transcript
    timeout = LONG
    served_by = "runner"

    path: limits.Path
    """A sound file below the workspace, relative to it or absolute."""


class ModelView(Reply, frozen=True, kw_only=True):
    """A model that sessions can use."""

    model: str
    """`provider/model`."""
    title: str
    context: int
    """Tokens."""
    reasoning: bool
    cost_input: float
    """US dollars per million tokens."""
    cost_output: float
    """US dollars per million tokens."""


class ModelList(Reply, frozen=True, kw_only=True):
    """Models, and providers whose models are their own."""

    default: str
    """What this session uses unless a prompt says otherwise."""
    models: list[ModelView]
    providers: list[str] = []
    """Providers all of whose models can be used besides, as `<provider>/<model>`."""


class ListModels(Tool, frozen=True, kw_only=True):
    """List the models a session can use, e.g. to choose one for a child."""

    name = method = "list_models"
    category = "other"
    route = "GET /api/models"
    reply = ModelList
    served_by = "runner"
