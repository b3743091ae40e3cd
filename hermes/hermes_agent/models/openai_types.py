"""OpenAI's JSON objects, as the types of its SDK for mypy and as plain mappings at run time.

The SDK takes a second to import, and its objects cost time for each chunk. So it is imported for type checks alone: a
field that is misspelled, or that a new release of the SDK no longer has, is an error of mypy.

- An object is written as a call: `ChoiceDelta(content="a")` makes the dict `{"content": "a"}`.
- A field is read through `field_names`: `chunk.get(CHUNK.choices)` reads `chunk.get("choices")`. A literal text in
  place of a name is a field of another provider, not of OpenAI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

T = TypeVar("T")

JsonObject: TypeAlias = dict[Any, Any]
"""An object that was read; its keys are texts, or names of `field_names`."""

if TYPE_CHECKING:
    from openai import pagination
    from openai.types import CompletionUsage as CompletionUsage
    from openai.types import CreateEmbeddingResponse as CreateEmbeddingResponse
    from openai.types import chat, create_embedding_response, model, responses
    from openai.types.chat import ChatCompletion as ChatCompletion
    from openai.types.chat import ChatCompletionAssistantMessageParam as ChatCompletionAssistantMessageParam
    from openai.types.chat import ChatCompletionChunk as ChatCompletionChunk
    from openai.types.chat import ChatCompletionFunctionToolParam as ChatCompletionFunctionToolParam
    from openai.types.chat import ChatCompletionMessage as ChatCompletionMessage
    from openai.types.chat import ChatCompletionMessageFunctionToolCall as ChatCompletionMessageFunctionToolCall
    from openai.types.chat.chat_completion import Choice as Choice
    from openai.types.chat.chat_completion_chunk import ChoiceDelta as ChoiceDelta
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall as ChoiceDeltaToolCall
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCallFunction as ChoiceDeltaToolCallFunction
    from openai.types.chat.chat_completion_message_function_tool_call import Function as Function
    from openai.types.chat.completion_create_params import (
        CompletionCreateParamsStreaming as CompletionCreateParamsStreaming,
    )
    from openai.types.completion_usage import CompletionTokensDetails as CompletionTokensDetails
    from openai.types.completion_usage import PromptTokensDetails as PromptTokensDetails
    from openai.types.responses import EasyInputMessageParam as EasyInputMessageParam
    from openai.types.responses import FunctionToolParam as FunctionToolParam
    from openai.types.responses import Response as Response
    from openai.types.responses import ResponseCompletedEvent as ResponseCompletedEvent
    from openai.types.responses import ResponseContentPartAddedEvent as ResponseContentPartAddedEvent
    from openai.types.responses import ResponseContentPartDoneEvent as ResponseContentPartDoneEvent
    from openai.types.responses import ResponseCreatedEvent as ResponseCreatedEvent
    from openai.types.responses import ResponseErrorEvent as ResponseErrorEvent
    from openai.types.responses import (
        ResponseFunctionCallArgumentsDeltaEvent as ResponseFunctionCallArgumentsDeltaEvent,
    )
    from openai.types.responses import ResponseFunctionCallArgumentsDoneEvent as ResponseFunctionCallArgumentsDoneEvent
    from openai.types.responses import ResponseFunctionToolCall as ResponseFunctionToolCall
    from openai.types.responses import ResponseFunctionToolCallParam as ResponseFunctionToolCallParam
    from openai.types.responses import ResponseIncompleteEvent as ResponseIncompleteEvent
    from openai.types.responses import ResponseInProgressEvent as ResponseInProgressEvent
    from openai.types.responses import ResponseInputImageParam as ResponseInputImageParam
    from openai.types.responses import ResponseInputTextParam as ResponseInputTextParam
    from openai.types.responses import ResponseOutputItemAddedEvent as ResponseOutputItemAddedEvent
    from openai.types.responses import ResponseOutputItemDoneEvent as ResponseOutputItemDoneEvent
    from openai.types.responses import ResponseOutputMessage as ResponseOutputMessage
    from openai.types.responses import ResponseOutputText as ResponseOutputText
    from openai.types.responses import ResponseTextDeltaEvent as ResponseTextDeltaEvent
    from openai.types.responses import ResponseTextDoneEvent as ResponseTextDoneEvent
    from openai.types.responses import ResponseUsage as ResponseUsage
    from openai.types.responses.response import IncompleteDetails as IncompleteDetails
    from openai.types.responses.response_create_params import (
        ResponseCreateParamsStreaming as ResponseCreateParamsStreaming,
    )
    from openai.types.responses.response_input_item_param import FunctionCallOutput as FunctionCallOutput
    from openai.types.responses.response_usage import InputTokensDetails as InputTokensDetails
    from openai.types.responses.response_usage import OutputTokensDetails as OutputTokensDetails

    EmbeddingUsage: TypeAlias = create_embedding_response.Usage
    ListedModel: TypeAlias = model.Model
    ModelList: TypeAlias = pagination.SyncPage[model.Model]
    ChunkChoice: TypeAlias = chat.chat_completion_chunk.Choice
    ResponseTextConfigParam: TypeAlias = responses.ResponseTextConfigParam
else:

    def __getattr__(name: str) -> type[dict]:
        if name[0].isupper():
            return dict
        raise AttributeError(name)


class _FieldNames:
    """Each attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        setattr(self, name, name)
        return name


def field_names(model: type[T]) -> type[T]:
    """Return an object with the names of the fields of an SDK type as attributes."""
    return cast("type[T]", _FieldNames())


def as_dict(value: object) -> dict[str, Any]:
    """Return an object that was written as the dict that it is at run time."""
    return cast("dict[str, Any]", value)
