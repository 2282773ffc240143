"""list_models: what this session's spec says. Pure."""

from valet_protocol.sandbox_spec import RunnerSpec
from valet_protocol.tools.other import ListModels, ModelList, ModelView

from valet_runner.tools.running import Answer


class Models:
    """Answers the tool."""

    def __init__(self, spec: RunnerSpec) -> None:
        self._list = listing(spec)

    async def list(self, _: ListModels) -> Answer:
        """All; they do not change while the sandbox runs."""
        return Answer(reply=self._list)


def listing(spec: RunnerSpec) -> ModelList:
    """The models of a spec. Providers that OpenCode knows itself bring models that the spec does not name."""
    return ModelList(
        default=spec.model,
        models=[
            ModelView(
                model=f"{provider.id}/{model.id}",
                title=model.name or model.id,
                context=model.context,
                reasoning=model.reasoning,
                cost_input=model.cost_input,
                cost_output=model.cost_output,
            )
            for provider in spec.providers
            for model in provider.models
        ],
        providers=[provider.id for provider in spec.providers if provider.builtin],
    )
