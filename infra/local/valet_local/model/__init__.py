"""The scripted model: an OpenAI-compatible chat-completions server that plays a scenario file.

It stands for the language model where Valet is demonstrated, tested and measured; everything else there is real.

    async with ScriptedModel(load_builtin("tests")) as model:
        ...  # an agent that uses model.url; then look at model.requests
"""

from valet_local.model.scenario import Scenario, load, load_builtin
from valet_local.model.server import ScriptedModel

__all__ = ["Scenario", "ScriptedModel", "load", "load_builtin"]
