"""The request bodies: the chapter's own, and what OpenAI's protocol says that greedy decoding has.

A field that would change the answer and is not implemented is refused, never ignored. Fields that
do not change it (`user`, `seed`, …) are accepted. Integers are strict: `"5"` and `true` are not 5.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

TokenIds = Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(min_length=1)]
Prompt = StrictStr | TokenIds

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "min_p": (0,),
}
"""Fields that are accepted with these values only, or with null."""


class StreamOptions(BaseModel):
    """What a stream tells beside the text."""

    include_usage: StrictBool = False
    continuous_usage_stats: StrictBool = False


class AnswerOptions(BaseModel):
    """What every kind of request may ask of its answer."""

    model_config = ConfigDict(extra="allow")

    model: StrictStr | None = None
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=0)] | None = None
    """Decoding is greedy: 0 or nothing."""
    stop: StrictStr | list[StrictStr] | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: StrictBool = False
    """Force the output length to max_tokens, as speed is measured."""
    return_token_ids: StrictBool = False
    """Let each chunk carry its token ids, so that a client counts exactly."""

    @model_validator(mode="after")
    def _only_neutral_extras(self) -> AnswerOptions:
        for name, value in (self.model_extra or {}).items():
            if name in NEUTRAL and value is not None and value not in NEUTRAL[name]:
                raise ValueError(f"{name} is not implemented: leave it out")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings, however they were written."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wants_usage(self) -> bool:
        """True when a stream has to end with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_running_usage(self) -> bool:
        """True when every chunk has to carry the usage so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats


class CompletionBody(AnswerOptions):
    """POST /v1/completions."""

    prompt: Prompt | Annotated[list[Prompt], Field(min_length=1, max_length=1)]

    @property
    def single_prompt(self) -> str | list[int]:
        """The prompt; a batch of one is taken out of its list."""
        if isinstance(self.prompt, list) and not isinstance(self.prompt[0], int):
            return self.prompt[0]
        return self.prompt


class TextPart(BaseModel):
    """One part of a message; only text is understood."""

    type: Literal["text"]
    text: StrictStr


class Message(BaseModel):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: StrictStr | list[TextPart]

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatBody(AnswerOptions):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[StrictInt, Field(ge=1)] | None = None


class GenerateBody(BaseModel):
    """POST /generate, the chapter's own endpoint."""

    model_config = ConfigDict(extra="forbid")

    prompt: Prompt
    max_new_tokens: Annotated[StrictInt, Field(ge=1)] = 64
