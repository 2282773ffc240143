"""Questions and permissions that the agent asks."""

import msgspec
from valet_protocol.events import agent
from valet_protocol.events.envelope import Data

from valet_runner import frames
from valet_runner.bridge_state import BridgeState, Result


def asked(state: BridgeState, frame: frames.QuestionAsked | frames.PermissionAsked) -> Result:
    """Something is asked. OpenCode keeps, and lists, what turns that were aborted have asked."""
    if not state.knows(frame.session_id) or state.floor is None or frame.id in state.questions:
        return state, []
    if frame.tool and frame.tool.message_id and not state.of_turn(frame.tool.message_id):
        return state, []
    kind = "permission" if isinstance(frame, frames.PermissionAsked) else "question"
    asked: Data
    if isinstance(frame, frames.PermissionAsked):
        asked = agent.QuestionAsked(
            question_id=frame.id,
            kind="permission",
            questions=[_permission_question(frame)],
            message_id=frame.tool.message_id if frame.tool else None,
            call_id=frame.tool.call_id if frame.tool else None,
            permission=frame.permission,
            patterns=frame.patterns,
        )
    else:
        asked = agent.QuestionAsked(
            question_id=frame.id,
            kind="question",
            questions=[
                agent.Question(
                    question=ask.question,
                    header=ask.header,
                    options=[agent.QuestionOption(label=o.label, description=o.description) for o in ask.options],
                    multiple=bool(ask.multiple),
                    custom=ask.custom is not False,
                )
                for ask in frame.questions
            ],
            message_id=frame.tool.message_id if frame.tool else None,
            call_id=frame.tool.call_id if frame.tool else None,
        )
    return msgspec.structs.replace(state, questions={**state.questions, frame.id: kind}), [asked]


def _permission_question(frame: frames.PermissionAsked) -> agent.Question:
    # the first option is the default when nobody answers, so it is the harmless one
    return agent.Question(
        question=f"May the agent use {frame.permission}: {', '.join(frame.patterns)}?",
        header=frame.permission,
        options=[
            agent.QuestionOption(label="reject", description="No; the turn stops"),
            agent.QuestionOption(label="once", description="Yes, this time"),
            agent.QuestionOption(label="always", description="Yes, until the agent is restarted"),
        ],
        custom=False,
    )


def resolved(state: BridgeState, question_id: str, outcome: str) -> Result:
    """It was answered, or refused."""
    if question_id not in state.questions:
        return state, []
    left = {key: kind for key, kind in state.questions.items() if key != question_id}
    resolved = agent.QuestionResolved(
        question_id=question_id, outcome="rejected" if outcome == "rejected" else "answered"
    )
    return msgspec.structs.replace(state, questions=left), [resolved]
