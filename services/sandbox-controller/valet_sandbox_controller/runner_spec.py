"""What a runner is told, made from the request and the configuration. Pure but for the arguments."""

from collections.abc import Sequence

import msgspec
from valet_protocol.events.facts import SandboxRequested
from valet_protocol.sandbox_spec import ModelSpec, ProviderSpec, RunnerSpec
from valet_service import config_file, credentials, sandbox_token
from valet_service.credentials import Key

from valet_sandbox_controller import limits, portal_token
from valet_sandbox_controller.provider import HostRepository, Places

_AGENT_KNOWS = tuple(name for name, _ in config_file.ENVIRONMENT_PROVIDERS)


def build(
    session_id: str,
    request: SandboxRequested,
    *,
    places: Places,
    source: HostRepository | None,
    providers: tuple[config_file.Provider, ...],
    account: Key | None,
    secret: bytes,
    entropy: bytes,
    now: int,
    orchestrator: bool = False,
    desktop: config_file.Desktop = "first-use",
    secure: bool = False,
    frame_ancestors: Sequence[str] = (),
) -> bytes:
    """JSON of the `RunnerSpec`. `now` is seconds since 1970, `entropy` 32 random bytes, `secure` whether people's
    browsers come to the sandbox by TLS, `frame_ancestors` the origins whose pages may show the sandbox's."""
    expires = now + limits.TOKEN_TTL
    creds = ""
    if account is not None:
        creds = credentials.creds(
            account,
            f"runner-{session_id}-{request.epoch}",
            credentials.runner_permissions(session_id),
            entropy=entropy,
            now=now,
            expires=expires,
        )
    repo = request.repo
    if source is not None:
        repo = places.source or str(source.path)
    return msgspec.json.encode(
        RunnerSpec(
            session_id=session_id,
            epoch=request.epoch,
            nats_creds=creds,
            portal_socket=places.portal_socket,
            portal_token=portal_token.mint(secret, session_id, request.epoch, expires),
            workspace=places.workspace,
            home=places.home,
            repo=repo,
            branch=request.branch,
            model=request.model,
            providers=[_provider(provider) for provider in providers],
            opencode=places.opencode,
            path=places.path,
            gateway_key=sandbox_token.key(secret, session_id),
            gateway_socket=places.gateway_socket,
            gateway_port=places.gateway_port,
            gateway_secure=secure,
            gateway_frame_ancestors=list(frame_ancestors),
            xterm_dir=places.xterm_dir,
            orchestrator=orchestrator,
            desktop=desktop,
        )
    )


def is_builtin(provider: config_file.Provider) -> bool:
    """Whether the agent speaks this provider's own protocol rather than the OpenAI-compatible one."""
    return provider.base_url is None and provider.id in _AGENT_KNOWS


def _provider(provider: config_file.Provider) -> ProviderSpec:
    return ProviderSpec(
        id=provider.id,
        builtin=is_builtin(provider),
        models=[
            ModelSpec(
                id=name,
                name=model.name or name,
                context=model.context,
                output=model.output,
                reasoning=model.reasoning,
                tool_call=model.tools,
                images=model.images,
                cost_input=model.cost.input if model.cost else 0.0,
                cost_output=model.cost.output if model.cost else 0.0,
            )
            for name, model in provider.models
        ],
    )
