"""A language model of a test: it speaks a script instead of thinking, through a real tokenizer of bytes."""

from collections.abc import Iterator, Sequence
from typing import Any

END = "<|im_end|>"
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Messages and tools between the marks of ChatML."""


def byte_tokenizer(transformers: Any, tokenizers: Any, template: str) -> Any:
    """A transformers tokenizer with one token per byte and a chat template."""
    special = ["<|endoftext|>", "<|im_start|>", END]
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = {word: index for index, word in enumerate([*special, *letters])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=special[0], eos_token=END, chat_template=template, padding_side="left"
    )


class Script:
    """What the model says, answer by answer; each may depend on all that it has read."""

    def __init__(self, tokenizer: Any, answers: Sequence[Any]) -> None:
        """Answers are texts, or functions from the text read so far to a text."""
        self.tokenizer = tokenizer
        self.read: list[str] = []
        """What the model read before each answer."""
        self._answers: Iterator[Any] = iter(answers)

    def answer(self, tokens: Sequence[int]) -> list[int]:
        """Tokens of the next answer, the end token included."""
        self.read.append(self.tokenizer.decode(tokens))
        said = next(self._answers)
        text = said if isinstance(said, str) else said(self.read[-1])
        return self.tokenizer(text + END, add_special_tokens=False)["input_ids"]
