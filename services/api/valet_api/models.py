"""Which models sessions may use, as the configuration says and — for providers it lists none of — the agent. Pure."""

from collections.abc import Mapping

import msgspec
from valet_protocol.errors import Unprocessable
from valet_service.config_file import Cost, Model, Provider, ValetConfig, is_model, usual_model

HOW_TO_CONFIGURE = (
    "Name one in the request (`provider/model`), or set `default_model` in valet.toml. A provider comes from its "
    "[providers.<id>] table there, or from ANTHROPIC_API_KEY, OPENAI_API_KEY or GOOGLE_API_KEY in the environment of "
    "`valet up`."
)


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model a session can be given."""

    id: str
    """`provider/model`, as requests name it."""
    provider: str
    name: str
    context: int | None
    """Tokens. This and what follows is none where the agent has it of its own and the configuration does not say."""
    output: int | None
    """Tokens."""
    reasoning: bool | None
    tools: bool | None
    images: bool | None
    cost: Cost | None
    """US dollars per million tokens."""


class ProviderView(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of models."""

    id: str
    any_model: bool
    """Whether every model of it is taken; otherwise only the listed ones."""
    connected: bool = True
    """Whether there is a key for it, or it needs none. A key is not tried out: a wrong one is one that is there."""
    missing_variable: str | None = None
    """Where it is not connected: the environment variable of `valet up` that is to hold its key."""


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """What there is."""

    items: list[ModelView]
    providers: list[ProviderView]
    default: str | None
    """What a session uses that names none."""


def listed(
    config: ValetConfig,
    known: Mapping[str, tuple[str, ...]] | None = None,
    *,
    missing_keys: Mapping[str, str] | None = None,
) -> ModelList:
    """Every model there is. `known`: what the agent knows of providers for which the configuration lists nothing;
    `missing_keys`: the variables without a value, by provider."""
    missing = missing_keys or {}

    def models_of(provider: Provider) -> tuple[tuple[str, Model | None], ...]:
        return provider.models or tuple((model_id, None) for model_id in (known or {}).get(provider.id, ()))

    return ModelList(
        items=[
            ModelView(
                id=f"{provider.id}/{model_id}",
                provider=provider.id,
                name=model_id if model is None else model.name or model_id,
                context=model and model.context,
                output=model and model.output,
                reasoning=model and model.reasoning,
                tools=model and model.tools,
                images=model and model.images,
                cost=model and model.cost,
            )
            for provider in config.providers
            for model_id, model in models_of(provider)
        ],
        providers=[
            ProviderView(
                id=provider.id,
                any_model=not models_of(provider),
                connected=provider.id not in missing,
                missing_variable=missing.get(provider.id),
            )
            for provider in config.providers
        ],
        default=usual_model(config),
    )


def checked_model(models: ModelList, model: str) -> str:
    """The model, if it is known. Raises `Unprocessable` (`unknown_model`) listing those that are."""
    known = [item.id for item in models.items] + [f"{item.id}/*" for item in models.providers if item.any_model]
    if is_model(model, known):
        return model
    choice = f"Known: {', '.join(known)}." if known else f"No model is configured. {HOW_TO_CONFIGURE}"
    raise Unprocessable("unknown_model", f"There is no model {model[:100]!r}. {choice}")


def chosen_model(models: ModelList, model: str | None) -> str:
    """The model a new session gets. Raises `Unprocessable` (`unknown_model`, `no_model`)."""
    if model is not None:
        return checked_model(models, model)
    if models.default is None:
        raise Unprocessable("no_model", f"There is no default model. {HOW_TO_CONFIGURE}")
    return models.default
